"""From the bytes of a reply to an `Action` on the items of a task.

`text.reply_scan` scans the bytes; this module binds the result to the three tools and
to the items. The name of an unknown tool or item becomes a negative number, for which
`environment.step` returns an error.
"""

import jax.numpy as jnp
from jaxtyping import Array, Int, UInt

from openagent_jax.environments.crafting import types
from openagent_jax.environments.crafting.types import Action, Call, Task
from openagent_jax.environments.crafting.words import Words
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan
from openagent_jax.text.lexicon import Lexicon


def parse(
    lexicon: Lexicon,
    words: Words,
    task: Task,
    text: UInt[Array, "Z"],
    num_bytes: Int[Array, ""],
) -> Action:
    """Return the action that the bytes `text[:num_bytes]` spell.

    Args:
      lexicon: holds all surface forms.
      words: the symbols of the tools and of their argument.
      task: the task whose items may be named.
      text: the bytes of the reply.
      num_bytes: number of bytes of the reply.
    """
    reply = reply_scan.scan(lexicon, text, num_bytes, max_args=1)
    is_tool = lexicons.same_text(lexicon, reply.name, jnp.array(words.tools))
    tool = jnp.where(jnp.any(is_tool), jnp.argmax(is_tool), -1)
    is_item = lexicons.same_text(lexicon, reply.arg_values[0], task.items.name)
    item = jnp.where(jnp.any(is_item), jnp.argmax(is_item), types.UNKNOWN_ITEM)
    named = lexicons.same_text(lexicon, reply.arg_names[0], jnp.int32(words.item))
    fits = named & (jnp.sum(reply.given) == 1)
    item = jnp.where(fits, item, types.WRONG_ARGUMENTS)
    item = jnp.where(jnp.any(reply.given), item, types.NO_ITEM)
    called = reply.kind == reply_scan.CALL
    call = Call(
        tool=jnp.where(called, tool, -1).astype(jnp.int32),
        item=jnp.where(called, item, types.NO_ITEM).astype(jnp.int32),
    )
    return Action(reply.kind, call, reply.value)
