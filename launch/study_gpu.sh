#!/usr/bin/env bash
# A pretrained model after SFT, PAFT and GRPO, on a machine with one GPU, in pieces.
#
#   launch/study_gpu.sh FOLDER MINUTES [flags of launch.ablate]
#
# This is the study of configs/paper/smollm2.py. The same command goes on where the last
# one was stopped, as long as FOLDER is there. FOLDER/results.tar, which is small, has
# what is reported: the table, and the report and manifest of each run. At the end, the
# model as shipped, after SFT and after PAFT also play 200 tasks of each category of
# BFCL, if the package bfcl-eval is installed.
set -euo pipefail
if (($# < 2)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
folder=$1 minutes=$2 start=$SECONDS
shift 2
cd "$(dirname "$0")/.."
mkdir -p "$folder"

save() {
  (cd "$folder" && find . -name report.json -o -name manifest.json -o -name table.md \
    -o -name figure.svg | tar -c -f results.tar -T -)
}
trap save EXIT

hours=$(awk "BEGIN {print ($minutes - 1) / 60}")
python3 -m launch.ablate --study=configs/paper/smollm2.py --workdir="$folder/study" \
  --sweep="compile_cache=$folder/compile_cache" --max_hours="$hours" "$@"

python3 -c "import bfcl_eval" 2>/dev/null || exit 0
port=8017
for run in shipped sft_0 paft_0; do
  model=(--workdir="$folder/study/$run")
  if [[ $run == shipped ]]; then
    model=(--config=configs/smollm2.py --config.model.chat_template=hermes_compact)
  fi
  for category in simple_python multiple irrelevance; do
    out=$folder/bfcl/${run}_$category
    if [[ -f $out/eval/0/report.json ]]; then continue; fi
    left=$((60 * minutes - (SECONDS - start)))
    if ((left < 60)); then exit 0; fi
    python3 -m launch.serve "${model[@]}" --name=served --port=$port &
    server=$!
    until python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health')" \
      2>/dev/null || ! kill -0 $server; do sleep 2; done
    timeout --signal=INT "$left" python3 -m launch.evaluate --agent=openai \
      --base_url=http://127.0.0.1:$port/v1 --model=served --suite=bfcl:$category \
      --config.eval.num_tasks=200 --config.eval.scenarios='()' --workdir="$out" ||
      echo "$out is not finished; start the same command again"
    kill $server
    wait $server || true
  done
done
