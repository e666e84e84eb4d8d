"""Serve a policy over OpenAI's protocol.

    python -m launch.serve --workdir=runs/paft --port=8000       a run
    python -m launch.serve --config=configs/smollm2.py           an untrained backbone

The server prints its address when it is ready, and answers /v1/chat/completions,
/v1/models and /health. On SIGTERM or Ctrl-C it finishes the requests in progress, then
exits. It needs pip install -e ".[serve]"; docs/serve.md has the details.
"""

import signal
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config whose init_from is served.", lock_config=True
)
WORKDIR = flags.DEFINE_string("workdir", None, "Run to serve.")
STEP = flags.DEFINE_string("step", "latest", "latest, best, or a step of the run.")
HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on.")
PORT = flags.DEFINE_integer(
    "port", 8000, "Port to listen on; 0 takes a free one.", 0, 65535
)
NAME = flags.DEFINE_string("name", None, "Name of the model; default: that of the run.")
MAX_BATCH = flags.DEFINE_integer(
    "max_batch", 8, "Requests that are decoded together.", 1
)
MAX_WAITING = flags.DEFINE_integer("max_waiting", 64, "Requests that may wait.", 1)
GRACE = flags.DEFINE_integer(
    "grace", 30, "Seconds for open requests to finish when the server stops.", 0
)


def main() -> None:
    if (CONFIG.value is None) == (WORKDIR.value is None):
        raise cli.UsageError("give either --workdir or --config")
    from launch.common import compile_cache, config, errors, policies

    with errors.needs_extra("launch.serve", "serve"):
        from launch.common import endpoint
    if CONFIG.value is not None:
        cli.refuse_unused(STEP, other="--workdir")
        c, model, params, _ = policies.of_config(config.resolve(CONFIG.value))
    else:
        c, model, params, _ = policies.of_run(Path(str(WORKDIR.value)), STEP.value)
    compile_cache.use(c.compile_cache)
    with endpoint.listen(str(HOST.value), int(PORT.value or 0)) as listener:
        decoder = endpoint.decoder(c, model, params, MAX_BATCH.value)
        del params  # the decoder holds its own copy
        name = NAME.value or c.name
        served = endpoint.served(c, model, decoder, name, MAX_WAITING.value)
        server = endpoint.server(served, GRACE.value)
        # After it has stopped, the server raises again the signals that it caught.
        # SIGTERM is ignored then, because it is not a failure.
        signal.signal(signal.SIGTERM, lambda *_: None)
        print(
            f"{name}: http://{endpoint.address(listener)}/v1, {MAX_BATCH.value} rows "
            f"of {served.max_context} tokens",
            flush=True,
        )
        server.run([listener])
    if served.engine.error:
        raise served.engine.error


if __name__ == "__main__":
    cli.run(main)
