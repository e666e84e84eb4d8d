"""Run commands in processes of their own, quickly."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

# A server imports the slow modules once, then forks for each command. So each command
# has a process of its own, with its own exit code and files, in a tenth of a second.
SERVER = """
import gc, json, os, runpy, signal, sys, warnings
warnings.simplefilter("ignore")
import jaxlib, tensorboardX
from launch.common import backbones, scoring
from openagent_jax import metrics
gc.freeze()
for line in sys.stdin:
    command, args, env, files = json.loads(line)
    if pid := os.fork():
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    # A shell starts background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(300)  # no command takes long; one that hangs is killed
    os.environ.update(env)
    for fd, name in enumerate(files, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), fd)
    sys.argv = [command, *args]
    try:
        runpy.run_module(command, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if error.code != 2:  # else tidying up would take longer than all the rest
            raise
        sys.stderr.flush()
        os._exit(2)
    break
"""


@dataclasses.dataclass
class Done:
    code: int
    out: str
    err: str


class Commands:
    """`start` a command, then `wait` for it; only one runs at a time.

    A command is a name in `launch`, or a module of the tests.
    """

    def __init__(self, folder: Path):
        self._files = [str(folder / name) for name in ("stdout", "stderr")]
        env = os.environ | {"JAX_PLATFORMS": "cpu"}
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def start(self, command: str, *args: str, **env: str) -> int:
        for name in self._files:
            Path(name).unlink(missing_ok=True)
        module = command if "." in command else f"launch.{command}"
        self._send(json.dumps([module, args, env, self._files]))
        return int(self._receive())

    def wait(self) -> Done:
        return Done(int(self._receive()), *(Path(x).read_text() for x in self._files))

    def __call__(self, command: str, *args: str, **env: str) -> Done:
        self.start(command, *args, **env)
        return self.wait()

    def output(self) -> str:
        """Return what the command has printed so far."""
        file = Path(self._files[0])
        return file.read_text() if file.exists() else ""

    def close(self):
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def _send(self, line):
        self._server.stdin.write(line + "\n")
        self._server.stdin.flush()

    def _receive(self):
        return self._server.stdout.readline()
