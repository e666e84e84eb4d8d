#!/usr/bin/env bash
# Train on GPUs under SLURM, one process for each GPU.
#
#   sbatch --nodes=2 launch/cluster/slurm.sh --config=configs/paft.py --workdir=/shared/runs/paft
#
# The workdir has to be on a disk that all nodes see, and so does the checkout, in which
# `sbatch` is called. The same command goes on with a run that was stopped, also on
# another number of nodes. Two minutes before the time is up, the run saves its state.
#
#SBATCH --job-name=openagent_jax
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
set -euo pipefail
if (($# == 0)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
# Each process sees all GPUs of its node and takes the one of its number. With
# --gpus-per-task each would see one GPU only; launch.train works with either.
exec srun --kill-on-bad-exit=1 --gpu-bind=none \
  python -m launch.train --distributed "$@"
