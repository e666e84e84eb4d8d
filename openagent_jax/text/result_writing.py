"""Write a result in one of the forms of `result_forms`, in JAX.

A result is a list of fields, each a leaf with a path such as `items.0.price`. JSON
forms nest it (see `nesting`), the others write the whole path as the name of the field.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.text import layout, nesting, scalars
from openagent_jax.text.result_forms import Form
from openagent_jax.text.style import Style


class Fields(NamedTuple):
    """The fields of a result."""

    given: Bool[Array, "H"]  # which are written
    outer: Int[Array, "H L"]  # as in `nesting`
    own: Int[Array, "H"]
    bare: Bool[Array, "H"]  # never has quotes
    is_typed: Bool[Array, "H"]  # has none in typed forms: a number, a boolean or null


def pieces(
    style: Style[int], which: Int[Array, ""], fields: Fields, value: Int[Array, "H V"]
) -> Int[Array, "P"]:
    """Return the pieces of a result.

    Args:
      style: has all forms.
      which: the traced index of the form.
      fields: the fields of the result.
      value: the symbols of each value.
    """
    parts: Any = (jnp.array(x)[which] for x in zip(*style.results, strict=True))
    form = Form(*parts)
    bare = fields.bare | (fields.is_typed & form.is_typed)
    leaves = fields.outer, fields.own, fields.given, bare, value
    nested = nesting.pieces(style.result_syntax, *leaves)
    nested = jnp.concatenate([layout.single(style.result_open), nested])
    flat = _flat(form, style.digits, fields, bare, value)
    size = max(len(nested), len(flat))
    body = jnp.where(form.is_json, layout.pad(nested, size), layout.pad(flat, size))
    return jnp.concatenate([form.open[None], body, form.close[None]])


def _flat(
    form: Form[Any],
    digits: scalars.Digits,
    fields: Fields,
    bare: Bool[Array, "H"],
    value: Int[Array, "H V"],
) -> Int[Array, "P"]:
    """Return the fields in a form that is not JSON, without what is around them."""
    given, outer, own = fields.given, fields.outer, fields.own
    index = digits.groups + outer - scalars.code(0)
    key = jnp.where(outer >= scalars.NUMBER, index, outer)
    point = jnp.where(outer != 0, digits.point, 0)
    name = jnp.stack([key, point], axis=2).reshape(len(own), -1)
    name = jnp.concatenate([name, own[:, None]], axis=1)
    later = jnp.cumsum(given) > 1
    quoted = bare.astype(jnp.int32)
    cell = jnp.concatenate(
        [form.before[quoted][:, None], value, form.after[quoted][:, None]], axis=1
    )

    def column(symbol: Array) -> Int[Array, "H 1"]:
        return jnp.broadcast_to(symbol, (len(own), 1))

    def rows(*parts: Array) -> Int[Array, "P"]:
        row = jnp.concatenate(parts, axis=1)
        return jnp.where(given[:, None], row, 0).reshape(-1)

    comma = jnp.where(later, form.comma, 0)[:, None]
    pair = jnp.where(form.is_table, 0, cell)
    again = jnp.concatenate([name, column(form.end_key)], axis=1)
    again = jnp.where(form.end_key != 0, again, 0)
    head = rows(comma, column(form.key), name, column(form.equals), pair, again)
    comma = jnp.where(later, form.cell_comma, 0)[:, None]
    cells = rows(comma, jnp.where(form.is_table, cell, 0))
    rule = rows(column(form.rule))
    return jnp.concatenate(
        [head, form.head_end[None], rule, form.rule_end[None], cells]
    )
