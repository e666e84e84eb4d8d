"""From a config and a policy to what is served."""

from ml_collections import ConfigDict

from launch import backbones, build, settings
from openagent_jax.serving import app, compact, conversation, reply
from openagent_jax.serving import decoder as decoders
from openagent_jax.serving.engine import Engine
from openagent_jax.serving.spell import Speller
from openagent_jax.types import Params


def served(
    c: ConfigDict,
    model: backbones.Backbone,
    params: Params,
    name: str,
    num_rows: int,
    max_waiting: int,
) -> app.Served:
    """A model as it is served; compiled."""
    source = build.task_worlds(c, model, settings.eval_domain(c))
    template, form = build.form_of(c, model)
    render = compact.render
    if template:
        whole = template.render

        def render(messages, tools, speaks):
            return [whole(messages, tools, speaks)]

    room, end_token = settings.sizes(c), source.lexicon.end_token
    decoder = decoders.compile(
        model.policy, params, end_token, num_rows, room.context_tokens
    )
    return app.Served(
        name=name,
        engine=Engine(decoder),
        conversations=conversation.Conversations(
            render, form.end, end_token, Speller(model.tokenizer, source.lexicon)
        ),
        alphabet=reply.Alphabet(model.tokenizer, form, end_token),
        form=reply.Form.of(form),
        # As in an episode that is played: what a tool says next has room too.
        max_context=room.context_tokens - room.result_tokens,
        max_tokens=room.action_tokens,
        temperature=c.eval.temperature,
        max_waiting=max_waiting,
    )
