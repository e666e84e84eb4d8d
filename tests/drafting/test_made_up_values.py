"""Values that are made up from names and formats of types."""

import pytest

from openagent_jax.drafting import made_up_values

NAMES = ("start_date", "time", "email", "url", "phone", "uuid", "order_id")


@pytest.mark.parametrize("name", NAMES)
def test_no_value_is_listed_twice(name, num_types=12):
    """Neither in one type, nor in two splits or two types of the same name."""
    taken = set()
    for _ in range(num_types):
        made = made_up_values.pools(name, {}, taken)
        lists = [values for values in made.values() if isinstance(values, list)]
        assert len(lists) == 3
        values = [value for values in lists for value in values]
        assert len(set(values)) == len(values) and taken.isdisjoint(values)
        taken |= set(values)


def test_full_hours_have_no_minutes():
    taken = set()
    for _ in range(12):
        shifted = made_up_values.pools("time", {}, taken)["shift"]
        assert shifted and not any(".00" in value for value in shifted)
        taken |= set(shifted)
