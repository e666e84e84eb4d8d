#!/usr/bin/env bash
# Pretrain a backbone on a machine with one GPU, in pieces of a few minutes.
#
#   launch/pretrain_gpu.sh FOLDER MINUTES [flags of launch.train]
#
# The same command goes on where the last one was stopped, also on another machine:
# FOLDER/state.tar.* hold the whole run in files of 15 MB, and are all that has to be
# brought along. Tasks are made on the CPU cores while the GPU trains. The policy is not
# evaluated here; `launch.evaluate --config=configs/base.py --config.init_from=RUN` does
# that, on any machine.
set -euo pipefail
if (($# < 2)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
folder=$1 end=$((SECONDS + 60 * $2))
shift 2
cd "$(dirname "$0")/.."
mkdir -p "$folder"
if [[ ! -d $folder/runs ]] && compgen -G "$folder/state.tar.*" >/dev/null; then
  cat "$folder"/state.tar.* | tar -x -C "$folder"
fi
mkdir -p "$folder/runs" "$folder/tokenizer"

save() {
  rm -f "$folder"/state.tar.*
  tar -c -C "$folder" runs tokenizer | split -b 15M - "$folder/state.tar."
}
trap save EXIT

train() { # argument of the config, flags...
  local arg=$1
  shift
  # The run saves its state when it is told to stop, a minute before the time is up.
  local seconds=$((end - SECONDS - 60))
  if ((seconds <= 0)); then
    echo "the time is up; start the same command again to go on"
    exit
  fi
  timeout --signal=TERM "$seconds" \
    python3 -m launch.train --config="configs/pretrain.py$arg" "$@" \
    --config.model.tokenizer="$folder/tokenizer" \
    --config.compile_cache="$folder/compile_cache" \
    --config.train.num_ahead=$(($(nproc) - 2)) \
    --config.checkpoint.keep_last=1 --config.eval.scenarios='()' \
    --config.eval.num_tasks=1 --config.eval.batch_size=1
}

if [[ ! -f $folder/tokenizer/tokenizer.json ]]; then
  python3 -m launch.tokenizer --out="$folder/tokenizer"
fi
large=(--config.train.batch_size=96 --config.algorithm.num_rows=32)
train :start --workdir="$folder/runs/start" "${large[@]}"
train :short --workdir="$folder/runs/short" \
  --config.init_from="$folder/runs/start" "${large[@]}"
train "" --workdir="$folder/runs/pretrain" \
  --config.init_from="$folder/runs/short" "${large[@]}" "$@"
