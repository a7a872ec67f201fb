"""What Prometheus is told, by the numbers."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.builders import Time
from tests.unit.tuner.cli.worlds import created, operations, slope, tune
from tuner.core import AccessRole, digest_of
from tuner.service.api import create_app
from tuner.service.fleet import FleetOverview
from tuner.service.metrics import KEPT_S, FleetCollector, registry
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.wire import TokenDraft

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def verbs() -> Operations:
    return operations()


def told(found: CollectorRegistry) -> Samples:
    families = text_string_to_metric_families(generate_latest(found).decode())
    return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_devices_studies_windows_and_energy_are_told(verbs: Operations) -> None:
    fleet = FleetOverview(verbs, Summaries(verbs))
    found = registry(fleet, verbs.loop, "1.2.3")
    study = created(verbs)
    tune(verbs, slope)
    fleet.view()
    fleet.summaries.renew()
    samples = told(found)
    assert value(samples, "jouletune_build_info", version="1.2.3") == 1.0
    assert value(samples, "jouletune_devices", health="offline") == 0.0
    assert value(samples, "jouletune_study_phase", study=study, phase="holding") == 1.0
    assert value(samples, "jouletune_study_limit_unmet", study=study) == 0.0
    trials = verbs.trials(study)
    assert value(samples, "jouletune_trials", state="completed") == len(trials)
    assert value(samples, "jouletune_windows_total", device="sim", state="completed") == len(trials)
    where = {"device": "sim", "workload": "inference"}
    joules = sum(10.0 * t.metrics["power_w"].mean for t in trials)
    told_j = value(samples, "jouletune_energy_joules_total", **where, origin="measured")
    assert told_j == pytest.approx(joules)
    last = trials[-1].metrics
    shown = value(samples, "jouletune_latency_seconds", **where, metric="latency_p99_ms")
    assert shown == pytest.approx(last["latency_p99_ms"].mean / 1e3)
    assert value(samples, "jouletune_suggestion_seconds_count") >= len(trials)


def test_events_are_counted_from_the_start_and_those_of_alerts_begin_at_0(
    verbs: Operations,
) -> None:
    verbs.loop.note("drift", "before the start")
    found = registry(FleetOverview(verbs, Summaries(verbs)), verbs.loop, "0")
    assert value(told(found), "jouletune_events_total", kind="drift") == 0.0


def test_a_look_at_the_database_is_kept_for_a_while(verbs: Operations) -> None:
    time = Time()
    fleet = FleetOverview(verbs, Summaries(verbs))
    collector = FleetCollector(fleet, "0", time.monotonic)
    found = CollectorRegistry()
    found.register(collector)
    assert value(told(found), "jouletune_events_total", kind="drift") == 0.0
    verbs.loop.note("drift", "now")
    assert value(told(found), "jouletune_events_total", kind="drift") == 0.0
    time.sleep(KEPT_S)
    assert value(told(found), "jouletune_events_total", kind="drift") == 1.0


@pytest.mark.parametrize(("role", "status"), [("viewer", 200), ("agent", 403), ("", 401)])
def test_a_viewers_token_is_asked_for(verbs: Operations, role: str, status: int) -> None:
    fleet = FleetOverview(verbs, Summaries(verbs))
    exposed = registry(fleet, verbs.loop, "0")
    app = create_app(verbs, "secret", frozenset({"testserver"}), "0", exposed=exposed)
    with TestClient(app) as client:
        token = ""
        if role == "viewer":
            token = verbs.access.create(TokenDraft(name="eve", role=AccessRole.VIEWER)).token
        if role == "agent":
            token = "of an agent"
            body = {"agent": "a", "digest": digest_of(token), "protocol": 1}
            client.post("/v1/enrol", json=body, headers={"Authorization": "Bearer secret"})
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status
