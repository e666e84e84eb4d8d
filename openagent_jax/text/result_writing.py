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

    value: Int[Array, "H"]  # see `scalars`; -1: there is none
    literal: Int[Array, "H"]  # what is written in its place; 0: nothing is
    outer: Int[Array, "H L"]  # as in `nesting`
    own: Int[Array, "H"]
    bare: Bool[Array, "H"]  # never has quotes in JSON
    is_typed: Bool[Array, "H"]  # has none in typed forms: a number, a boolean or null

    @property
    def given(self) -> Bool[Array, "H"]:
        """Which fields are written."""
        return (self.value >= 0) | (self.literal != 0)


def chosen(style: Style[int], which: Int[Array, ""]) -> Form[Any]:
    """Return the form of a traced index."""
    parts: Any = (jnp.array(x)[which] for x in zip(*style.results, strict=True))
    return Form(*parts)


def pieces(style: Style[int], which: Int[Array, ""], fields: Fields) -> Int[Array, "P"]:
    """Return the pieces of a result.

    Args:
      style: has all forms.
      which: the traced index of the form.
      fields: the fields of the result.
    """
    form, usual = chosen(style, which), style.digits
    point = jnp.where(form.point != 0, form.point, usual.point)
    digits = usual._replace(point=point, thousands=form.thousands)
    bare = fields.bare | (fields.is_typed & form.is_typed)
    differs = (form.thousands != 0) | (form.point != 0)
    bare &= ~(differs & (fields.value >= scalars.NUMBER))
    value = scalars.spell(digits, jnp.where(fields.literal != 0, 0, fields.value))
    value = value.at[:, 0].add(fields.literal)
    return written(style, form, fields._replace(bare=bare), value)


def written(
    style: Style[int], form: Form[Any], fields: Fields, value: Int[Array, "H V"]
) -> Int[Array, "P"]:
    """Return the pieces of a result whose values are spelled already.

    Args:
      style: how JSON is written.
      form: the form.
      fields: the fields of the result; their values serve to tell which are written.
      value: the symbols of each value.
    """
    leaves = fields.outer, fields.own, fields.given, fields.bare, value
    nested = nesting.pieces(style.result_syntax, *leaves)
    nested = jnp.concatenate([layout.single(style.result_open), nested])
    flat = _flat(form, style.digits, fields, value)
    size = max(len(nested), len(flat))
    body = jnp.where(form.is_json, layout.pad(nested, size), layout.pad(flat, size))
    return jnp.concatenate([form.open[None], body, form.close[None]])


def _flat(
    form: Form[Any], digits: scalars.Digits, fields: Fields, value: Int[Array, "H V"]
) -> Int[Array, "P"]:
    """Return the fields in a form that is not JSON, without what is around them."""
    given, outer, own = fields.given, fields.outer, fields.own
    index = digits.groups + outer - scalars.code(0)
    key = jnp.where(outer >= scalars.NUMBER, index, outer)
    point = jnp.where(outer != 0, digits.point, 0)
    name = jnp.stack([key, point], axis=2).reshape(len(own), -1)
    name = jnp.concatenate([name, own[:, None]], axis=1)
    later = jnp.cumsum(given) > 1
    bare = fields.bare.astype(jnp.int32)
    cell = jnp.concatenate(
        [form.before[bare][:, None], value, form.after[bare][:, None]], axis=1
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
