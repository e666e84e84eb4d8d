"""An evaluation of the expert, to compare with, and short delays of retries."""

from typing import Any, NamedTuple

import pytest

from openagent_jax.agents import agents
from openagent_jax.agents.log import Log
from tests import scripted
from tests.agents import endpoints


class Reference(NamedTuple):
    """The evaluation of the expert when nothing goes wrong."""

    log: Log
    episodes: dict[tuple[str, int], Any]  # as `endpoints.read_log` returns them
    num_requests: int


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    file = tmp_path_factory.mktemp("reference") / "episodes.jsonl"
    endpoints.expert_replies()  # computed now, so that no request has to wait for it
    with scripted.server(endpoints.expert) as server:
        log = endpoints.evaluate(file, endpoints.endpoint_of(server))
    return Reference(log, endpoints.read_log(file)[0], len(server.requests))


@pytest.fixture
def short_delays(monkeypatch):
    """Retry requests after milliseconds."""
    monkeypatch.setattr(agents, "BACK_OFF", 0.01)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)
