#!/usr/bin/env bash
# Train on all workers of a TPU pod, or of a slice of one.
#
#   launch/cluster/tpu_pod.sh NAME ZONE --config=configs/paft.py --workdir=/mnt/runs/paft
#
# NAME and ZONE are those of the TPU VM, which has to exist. The commit that is checked
# out here is installed on every worker, from the remote "origin". The workdir has to be
# in a file system that all of them have mounted (Filestore, or a bucket by gcsfuse); an
# address such as gs://BUCKET is refused. The same command goes on with a run that was
# stopped or preempted, also on another number of chips.
set -euo pipefail
if (($# < 3)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
name=$1 zone=$2
shift 2
commit=$(git rev-parse HEAD)
origin=$(git remote get-url origin)
if [[ -n $(git status --porcelain --untracked-files=no) ]]; then
  echo "tpu_pod.sh: commit your changes first; workers get what is committed" >&2
  exit 2
fi

everywhere() { # command
  gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="$1"
}

folder=openagent_jax
everywhere "set -e
[ -d $folder ] || git clone -q $origin $folder
cd $folder
git fetch -q origin && git checkout -q $commit
pip install -q -e '.[tpu]'"
everywhere "cd $folder && exec python3 -m launch.train --distributed $(printf '%q ' "$@")"
