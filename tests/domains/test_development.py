"""The training split of a domain, divided again."""

import pytest

from openagent_jax.domains import domain_file, domain_spec
from tests.domains import inns

DOMAINS = {name: domain_file.load(name) for name in ("poi", "medical")}


class TestDevelopment:
    def test_nothing_of_the_test_split_is_used(self):
        for name, full in DOMAINS.items():
            part = domain_file.load(f"{name}:dev")
            train, test = (texts_of(full, split) for split in ("train", "test"))
            halves = texts_of(part, "train"), texts_of(part, "test")
            assert not halves[0] & halves[1]
            assert halves[0] | halves[1] == train and not train & test

    def test_halves_share_no_first_word(self):
        part = domain_file.load("poi:dev")
        pools = [(t.train, t.test) for t in part.types if t.kind == "entity"]
        phrases = [goal.phrases for goal in part.goals]
        pools += [
            [
                [text for pool in phrases for text in pool[split]]
                for split in ("train", "test")
            ]
        ]
        for train, test in pools:
            first, held = ({text.split()[0] for text in half} for half in (train, test))
            assert not first & held
            assert 0.2 < len(test) / (len(train) + len(test)) < 0.4

    def test_a_file_with_too_few_texts(self, tmp_path):
        file = inns.save(tmp_path, inns.good())
        with pytest.raises(domain_spec.DomainError) as caught:
            domain_file.load(f"{file}:dev")
        message = "city: one text for training; add another, as :dev needs two"
        assert str(caught.value) == f"{file}: {message}"


def texts_of(domain, split: str) -> set[tuple[str, str]]:
    """All texts that differ between the splits, each with its place."""
    found = {(kind.name, text) for kind in domain.types if kind.kind == "entity"
             for text in getattr(kind, split)}  # fmt: skip
    for tool in domain.tools:
        pools = {"names": tool.names, "texts": tool.descriptions, **tool.argument_names}
        for place, pool in pools.items():
            found |= {(f"{tool.name}.{place}", text) for text in pool[split]}
    for goal in domain.goals:
        for pool in (split, f"rewrite_{split}"):
            found |= {(goal.name, text) for text in goal.phrases[pool]}
    return found
