"""Forms of keys: distinct, disjoint between the splits, and the same on the device."""

import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.domains import domain_file
from openagent_jax.environments.tools.worlds import mixture
from openagent_jax.text import key_forms, nesting, result_forms
from openagent_jax.text.symbols import Symbols

KEYS = ("utc_offset", "labelId", "label_id", "hour", "weight", "$ref", "code")
NAMES = ("as it is", *key_forms.TRAIN, *key_forms.TEST)


def made(keys=KEYS, units=None):
    """`{form: keys in that form}`, as the tables have them."""
    symbols = Symbols()
    known = [symbols.one(key) for key in keys]
    tables = key_forms.tables(symbols, known, units or {})
    return {
        name: [
            symbols.texts[x]
            for x in np.asarray(tables.written(jnp.array(known), jnp.int32(k)))
        ]
        for k, name in enumerate(NAMES)
    }


def test_tables():
    found = made(units={"weight": "kg/ha"})
    assert found["as it is"] == [*KEYS]
    assert found["with_unit"] == [*KEYS[:4], "weight_kg_per_ha", *KEYS[5:]]
    # A key that another one has taken stays as it is.
    assert found["camel_case"][:3] == ["utcOffset", "labelId", "label_id"]
    assert found["spanish"][3:5] == ["hora", "peso"]


def test_others_stay_as_they_are():
    symbols = Symbols()
    hour = symbols.one("hour")
    tables = key_forms.tables(symbols, [hour], {})
    others = jnp.array([0, hour + 1, 1 << 30])
    assert np.array_equal(tables.written(others, jnp.int32(1)), others)


def test_ranges_are_disjoint_and_complete():
    (low, middle), (also_middle, high) = key_forms.RANGES
    assert (low, middle, high) == (1, also_middle, len(NAMES))
    assert len({*NAMES}) == len(NAMES)


def library():
    specs = [domain_file.load(name) for name in domain_file.builtins()]
    paths = {path for x in specs for tool in x.tools for path, _ in tool.returns}
    keys = {str(key) for path in paths for key in nesting.parse(path)}
    return specs, sorted(key for key in keys if not key.isdecimal())


@pytest.fixture(scope="module")
def of_library():
    specs, keys = library()
    return keys, made(keys, mixture.units(specs))


@pytest.mark.parametrize("name", NAMES)
def test_of_the_library(name, of_library):
    """All keys of the library keep apart and can be written in all forms of results."""
    keys, found = of_library
    assert len({*found[name]}) == len(keys) > 300
    assert all(map(result_forms.is_plain, found[name]))


def test_most_keys_of_the_library_change(of_library):
    keys, found = of_library
    share = {
        name: np.mean([x != key for key, x in zip(keys, found[name], strict=True)])
        for name in NAMES[1:]
    }
    assert min(share[x] for x in ("pascal_case", "upper_case", "header_case")) > 0.9
    assert share["spanish"] > 0.6
    assert 0.05 < share["camel_case"] and 0.05 < share["with_unit"]


def test_spanish_is_one_to_one():
    found = key_forms._spanish()
    assert len({*found.values()}) == len(found) > 300
