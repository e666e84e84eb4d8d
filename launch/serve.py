"""Serve a policy to whoever speaks OpenAI's protocol.

    python -m launch.serve --workdir=runs/paft --port=8000       a run, as it was set up
    python -m launch.serve --config=configs/smollm2.py           a backbone as it is

It says its address when it is ready, answers /v1/chat/completions, /v1/models and
/health, and ends on SIGTERM or Ctrl-C when those are answered who are being served.
docs/serve.md says more; pip install -e ".[serve]" brings what it needs.
"""

import signal
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Serve the init_from of this config.", lock_config=True
)
WORKDIR = flags.DEFINE_string("workdir", None, "A run to serve.")
STEP = flags.DEFINE_string("step", "latest", "latest, best, or a step of the run.")
HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen at.")
PORT = flags.DEFINE_integer("port", 8000, "Its port; 0 takes a free one.", 0, 65535)
NAME = flags.DEFINE_string("name", None, "Of the model; default that of the run.")
MAX_BATCH = flags.DEFINE_integer("max_batch", 8, "Requests decoded together.", 1)
MAX_WAITING = flags.DEFINE_integer("max_waiting", 64, "Requests that may wait.", 1)
GRACE = flags.DEFINE_integer("grace", 30, "Seconds to finish in, at the end.", 0)


def main() -> None:
    if (CONFIG.value is None) == (WORKDIR.value is None):
        raise cli.BadUse("give --workdir or --config, one of them")
    from launch import backbones, programs, settings

    with settings.needs_extra("launch.serve", "serve"):
        from launch import endpoint
    if CONFIG.value is not None:
        c = CONFIG.value
        settings.check(c)
        model = backbones.backbone(c)
        params = backbones.first_params(c, model, backbones.split(c, model.config))
    else:
        workdir = Path(str(WORKDIR.value))
        c = settings.stored_config(workdir)
        settings.check(c)
        model, params, _ = backbones.restore(workdir, STEP.value, c)
    programs.keep(c.compile_cache)
    with endpoint.listen(str(HOST.value), int(PORT.value or 0)) as door:
        decoder = endpoint.decoder(c, model, params, MAX_BATCH.value)
        del params  # the decoder has its own
        name = NAME.value or c.name
        served = endpoint.served(c, model, decoder, name, MAX_WAITING.value)
        server = endpoint.server(served, GRACE.value)
        # The server raises what it has caught again; to be ended is no failure.
        signal.signal(signal.SIGTERM, lambda *_: None)
        print(
            f"{name}: http://{endpoint.address(door)}/v1, {MAX_BATCH.value} rows of "
            f"{served.max_context} tokens",
            flush=True,
        )
        server.run([door])
    if served.engine.error:
        raise served.engine.error


if __name__ == "__main__":
    cli.run(main)
