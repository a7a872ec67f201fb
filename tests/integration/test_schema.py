"""The tuner answers every request with every token as its own documentation says, and never 5xx."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from db import Store, open_store
from tests.builders import Time, device, policies
from tests.profiles import examples
from tuner.core import AccessRole, digest_of
from tuner.service.access import ADMIN as ADMIN_CALLER
from tuner.service.fleet import FleetOverview
from tuner.service.http import gate, sessions
from tuner.service.http.api import create_app
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import Metrics
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.study.loop import Loop
from tuner.wire import Enrolment, StudyDraft, TokenDraft

ADMIN = "admin's own"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
STREAM = "/v1/events/stream"
"""The stream, which does not end; it is tested with the feed."""
ROLES = ("nobody", "viewer", "operator", "admin", "agent", "enrol")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path_factory.mktemp('schema') / 'tuner.sqlite'}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def tokens(store: Store) -> dict[str, str]:
    """Return a token of each role, at a tuner with a device and its study."""
    verbs = Operations(Loop(store, policies, Time().now))
    access = verbs.access
    people = (AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN, AccessRole.ENROL)
    drafts = {
        r: TokenDraft.model_validate({"name": f"a-{r}", "role": r, "days": 0}) for r in people
    }
    made = {role: access.create(draft).token for role, draft in drafts.items()}
    own = "an agent's own token"
    access.enrol(ADMIN_CALLER, Enrolment(agent="host", digest=digest_of(own)))
    verbs.loop.register(device("sim", agent="host"))
    verbs.create(StudyDraft(devices=("sim",), policy="scripted", constraints=()))
    return {str(role): token for role, token in made.items()} | {"agent": own, "nobody": "guess"}


@pytest.fixture(scope="module")
def schema(store: Store, tokens: dict[str, str]) -> schemathesis.schemas.BaseSchema:
    verbs = Operations(Loop(store, policies, Time().now))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gate, "REQUESTS_AT_ONCE", 1e9)
        patched.setattr(sessions, "FAILURES_AT_ONCE", 1e9)
        metrics = Metrics(FleetOverview(verbs, Summaries(verbs)), Counts(), "0")
        hosts = frozenset({"localhost", "testserver"})
        app = create_app(verbs, ADMIN, hosts, "0", metrics=metrics)
        return schemathesis.openapi.from_asgi(
            "/v1/openapi.json", app, headers={"Authorization": f"Bearer {ADMIN}"}
        )


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.slow
def test_every_answer_is_documented_and_none_is_our_fault(
    role: str, schema: schemathesis.schemas.BaseSchema, tokens: dict[str, str]
) -> None:
    headers = {"Authorization": f"Bearer {tokens[role]}"}
    requests = 0
    for result in schema.get_all_operations():
        operation = result.ok()  # type: ignore[union-attr]
        if operation.path == STREAM:
            continue
        requests += 1
        _play(lambda case: case.call_and_validate(headers=headers, checks=CHECKS), operation)
    assert requests >= 30


def _play(
    ask: Callable[[schemathesis.Case[Any]], object],
    operation: schemathesis.schemas.APIOperation[Any, Any, Any, Any],
) -> None:
    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples(0.2),
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    def play(case: schemathesis.Case[Any]) -> None:
        ask(case)

    play()
