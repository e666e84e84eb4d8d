"""The scripts that start a run on many machines, with imitations of their tools."""

import os
import subprocess
from pathlib import Path

import pytest

from launch.common import processes

FOLDER = Path(processes.__file__).parents[1] / "cluster"


def run(script, *args, folder, **env):
    return subprocess.run(
        [str(FOLDER / script), *args],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"} | env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def imitate(folder, name, text):
    """Put a command into a folder of the PATH."""
    file = folder / name
    file.write_text(f"#!/usr/bin/env bash\n{text}\n")
    file.chmod(0o755)


def test_slurm_starts_one_process_for_each_gpu(tmp_path):
    imitate(tmp_path, "srun", 'printf "%s\\n" "$@"')
    done = run("slurm.sh", "--config=a b", "--workdir=w", folder=tmp_path)
    words = done.stdout.splitlines()
    command = ["python", "-m", "launch.train", "--distributed"]
    assert words[-6:] == [*command, "--config=a b", "--workdir=w"]
    assert words[:-6] and all(x.startswith("--") for x in words[:-6])


# Starts two processes on this machine, which have another seed each.
SRUN = """
while [[ $1 == --* ]]; do shift; done
export SLURM_JOB_ID=$$ SLURM_STEP_NODELIST=localhost SLURM_NTASKS=2
for i in 0 1; do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" --config.seed=$i &
done
wait
"""


@pytest.mark.slow
def test_slurm_tells_processes_who_the_others_are(tmp_path):
    """They meet without any variable of ours, and find that they differ."""
    imitate(tmp_path, "srun", SRUN)
    args = f"--config={FOLDER.parents[1] / 'configs/sft.py'}", "--dry_run"
    jax = "JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID".split()
    assert not {*jax} & {*os.environ}
    done = run(
        "slurm.sh",
        *args,
        folder=tmp_path,
        PYTHONPATH=str(FOLDER.parents[1]),
        JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo",
    )
    lines = [x for x in done.stderr.splitlines() if x.startswith("train.py: ")]
    assert len(lines) == 2
    assert all("process 0 has the config" in line for line in lines)


def test_a_pod_runs_the_same_command_on_every_worker(tmp_path):
    def git(*words):
        done = subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@x", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    git("init", "-q")
    git("remote", "add", "origin", "https://example.org/repository")
    (tmp_path / ".gitignore").write_text("gcloud\n")
    git("add", ".gitignore")
    git("commit", "-q", "-m", "x")
    imitate(tmp_path, "gcloud", 'printf "%s\\n" "$@"')
    args = "pod", "zone", "--config=configs/paft.py", "--workdir=/mnt/my runs"
    done = run("tpu_pod.sh", *args, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--worker=all\n") == 2
    assert f"git checkout -q {git('rev-parse', 'HEAD')}\n" in done.stdout
    assert done.stdout.rstrip().endswith(
        "exec python3 -m launch.train --distributed --config=configs/paft.py "
        "--workdir=/mnt/my\\ runs"
    )
    (tmp_path / ".gitignore").write_text("gcloud\nmore\n")
    done = run("tpu_pod.sh", *args, folder=tmp_path)
    assert done.returncode == 2 and "commit your changes first" in done.stderr


@pytest.mark.parametrize("script", ["slurm.sh", "tpu_pod.sh"])
def test_without_arguments_a_script_shows_how_it_is_used(script, tmp_path):
    done = run(script, folder=tmp_path)
    assert done.returncode == 2 and f"launch/cluster/{script} " in done.stderr


@pytest.mark.parametrize(
    ("local", "shown", "expected"),
    [("3", "5", [0]), ("3", "0,1,2,3", None), ("3", "", None), (None, "5", None)],
)
def test_the_gpu_of_a_process(monkeypatch, local, shown, expected):
    """Under SLURM a process sees all GPUs of its node, or its own one alone."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    monkeypatch.delenv("SLURM_LOCALID", raising=False)
    if local:
        monkeypatch.setenv("SLURM_LOCALID", local)
    assert processes._visible() == expected
