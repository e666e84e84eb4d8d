"""The parts that serve a policy over HTTP: decoder, application and socket."""

import errno
import socket

import uvicorn

from launch.common import build
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from openagent_jax.serving import app, compact, conversation, reply
from openagent_jax.serving import decoder as decoders
from openagent_jax.serving.decoder import Decoder
from openagent_jax.serving.engine import Engine
from openagent_jax.serving.surface_tokenizer import SurfaceTokenizer
from openagent_jax.types import Params


def decoder(c: Config, model: Backbone, params: Params, num_rows: int) -> Decoder:
    """Compile a decoder in which each row has room for an episode."""
    _, text_style = build.style_of(c.sandbox.num_args, model)
    end_token = model.tokenizer.token_to_id(text_style.end)
    assert end_token is not None  # style_of has checked it
    room = c.sandbox.context_tokens
    return decoders.compile(model.policy, params, end_token, num_rows, room)


def served(
    c: Config,
    model: Backbone,
    decoder: Decoder,
    name: str,
    max_waiting: int,
) -> app.Served:
    """Return a model as the application serves it.

    Args:
      c: the config.
      model: its tokenizer and chat template format the messages.
      decoder: a decoder of the same model.
      name: the model name that clients use.
      max_waiting: requests that may wait for a row.
    """
    source = build.world(c, model, c.eval_domain)
    template, text_style = build.style_of(c.sandbox.num_args, model)
    render = compact.render
    if template:
        render_all = template.render

        def render(messages, tools, add_generation_prompt):
            return [render_all(messages, tools, add_generation_prompt)]

    lexicon, sizes = source.tables.lexicon, source.environment.sizes
    is_flat = template is None and lexicon.style.nested is None
    return app.Served(
        name=name,
        engine=Engine(decoder),
        conversations=conversation.Conversations(
            render,
            text_style.end,
            lexicon.end_token,
            SurfaceTokenizer(model.tokenizer, lexicon),
        ),
        detokenizer=reply.Detokenizer(model.tokenizer, text_style, lexicon.end_token),
        call_style=reply.call_style(text_style, flat=is_flat),
        # As in a rollout, there must be room left for the result of a call.
        max_context=sizes.context_tokens - sizes.result_tokens,
        max_tokens=sizes.action_tokens,
        temperature=c.eval.temperature,
        max_waiting=max_waiting,
    )


def server(served: app.Served, grace: int = 1) -> uvicorn.Server:
    """Return a server that runs until it is stopped, or until its engine fails.

    Args:
      served: the model.
      grace: seconds that open requests have to finish when the server stops.
    """

    def stop() -> None:
        made.should_exit = True

    made = uvicorn.Server(
        uvicorn.Config(
            app.make(served, stop),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=grace,
        )
    )
    return made


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises:
      UsageError: the host is unknown.
      OSError: the port is in use, or the address does not belong to this machine.
    """
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server((host, port), family=family)
        # Accepted connections inherit this. Without it (and without uvloop, which sets
        # it) a reply would be delayed.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except socket.gaierror as error:
        raise UsageError(f"--host={host}: {error.strerror}") from None
    except OSError as error:
        message = f"--host={host} --port={port}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            message += "; --port=0 finds a free one"
        raise OSError(message) from None


def address(listener: socket.socket) -> str:
    """Return `host:port` of a listening socket."""
    host, port = listener.getsockname()[:2]
    is_ipv6 = listener.family == socket.AF_INET6
    return f"[{host}]:{port}" if is_ipv6 else f"{host}:{port}"
