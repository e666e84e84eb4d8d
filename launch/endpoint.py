"""From a config and a policy to what is served."""

import errno
import socket

import uvicorn
from ml_collections import ConfigDict

from launch import backbones, build, settings
from launch.cli import BadUse
from openagent_jax.serving import app, compact, conversation, reply
from openagent_jax.serving import decoder as decoders
from openagent_jax.serving.decoder import Decoder
from openagent_jax.serving.engine import Engine
from openagent_jax.serving.spell import Speller
from openagent_jax.types import Params


def decoder(
    c: ConfigDict, model: backbones.Backbone, params: Params, num_rows: int
) -> Decoder:
    """Compiled, with room for an episode in each row."""
    _, form = build.form_of(c, model)
    end_token = model.tokenizer.token_to_id(form.end)
    assert end_token is not None  # of a form that was found sound
    room = c.sandbox.context_tokens
    return decoders.compile(model.policy, params, end_token, num_rows, room)


def served(
    c: ConfigDict,
    model: backbones.Backbone,
    decoder: Decoder,
    name: str,
    max_waiting: int,
) -> app.Served:
    """A model as it is served."""
    source = build.task_worlds(c, model, settings.eval_domain(c))
    template, form = build.form_of(c, model)
    render = compact.render
    if template:
        whole = template.render

        def render(messages, tools, speaks):
            return [whole(messages, tools, speaks)]

    room, end_token = settings.sizes(c), source.lexicon.end_token
    return app.Served(
        name=name,
        engine=Engine(decoder),
        conversations=conversation.Conversations(
            render, form.end, end_token, Speller(model.tokenizer, source.lexicon)
        ),
        alphabet=reply.Alphabet(model.tokenizer, form, end_token),
        form=reply.form_of(form, flat=template is None),
        # As in an episode that is played: what a tool says next has room too.
        max_context=room.context_tokens - room.result_tokens,
        max_tokens=room.action_tokens,
        temperature=c.eval.temperature,
        max_waiting=max_waiting,
    )


def server(served: app.Served, grace: int = 1) -> uvicorn.Server:
    """Runs until it is told to end, or the engine has died.

    Args:
      served: the model.
      grace: seconds that are left, at the end, to those who are being served.
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
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = socket.create_server((host, port), family=family)
        # Who is let in has it too; a loop without uvloop would wait before it answers.
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return door
    except socket.gaierror as error:
        raise BadUse(f"--host={host}: {error.strerror}") from None
    except OSError as error:
        said = f"--host={host} --port={port}: {error.strerror}"
        taken = error.errno == errno.EADDRINUSE
        raise OSError(said + "; --port=0 finds a free one" * taken) from None


def address(door: socket.socket) -> str:
    host, port = door.getsockname()[:2]
    return f"[{host}]:{port}" if door.family == socket.AF_INET6 else f"{host}:{port}"
