"""The answer to a scrape: permissions, metrics and cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from db.sql.devices import Devices
from db.sql.studies import Studies
from db.sql.trials import Trials
from tests.builders import applied, device, setting
from tests.unit.tuner.study.test_changes import report
from tests.unit.tuner.study.worlds import World, truth
from tuner.config import OWN_METRIC_LABELS
from tuner.core import AccessRole, Delivery, Level, StoreError
from tuner.service.fleet import FleetOverview
from tuner.service.http.api import create_app
from tuner.service.http.routes import TEXT
from tuner.service.metrics import fleet_metrics
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import CACHE_S, Metrics
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.wire import Change, Poll, TokenDraft

ADMIN = "admin's"


@dataclass
class Scraped:
    """A tuner with metrics, and a client that scrapes them."""

    world: World = field(default_factory=World)
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.world.telemetry = self.counts
        self.world.loop = self.world.restarted()
        self.verbs = Operations(self.world.loop)
        monotonic = self.world.time.monotonic
        self.summaries = Summaries(self.verbs, monotonic)
        fleet = FleetOverview(self.verbs, self.summaries)
        self.metrics = Metrics(fleet, self.counts, "1.2.3", monotonic)
        app = create_app(self.verbs, ADMIN, frozenset({"testserver"}), "0", metrics=self.metrics)
        self.client = TestClient(app)

    def ask(self, token: str) -> Any:  # noqa: ANN401
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.client.get("/metrics", headers=headers)

    def told(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return every sample of a fresh scrape by its name and labels."""
        self.world.time.sleep(CACHE_S)
        families = text_string_to_metric_families(self.metrics.text().decode())
        return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of one sample; None where there is none."""
        return self.told().get((f"jouletune_{name}", frozenset(labels.items())))


@pytest.fixture
def scraped() -> Iterator[Scraped]:
    made = Scraped()
    with made.client:
        yield made


def held(scraped: Scraped) -> None:
    """Run a study to its hold, and report one window of the hold."""
    scraped.world.start()
    order = scraped.world.run(truth)
    scraped.world.ask_holding(order)
    scraped.world.loop.hold_reports.observe(report(order, scraped.world, 1))
    assert scraped.value("studies_pending") == 1.0
    assert scraped.summaries.renew() == 1


def test_a_viewer_may_scrape_and_an_agent_or_a_stranger_may_not(scraped: Scraped) -> None:
    access = scraped.verbs.access
    viewer = access.create(TokenDraft(name="prometheus", role=AccessRole.VIEWER)).token
    enrolling = access.create(TokenDraft(name="new", role=AccessRole.ENROL)).token
    answer = scraped.ask(viewer)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == TEXT
    assert 'jouletune_build_info{version="1.2.3"} 1.0' in answer.text
    assert scraped.ask(ADMIN).status_code == 200
    assert scraped.ask(enrolling).status_code == 403
    assert scraped.ask("").status_code == 401


def test_a_hold_has_metrics_of_setting_latency_power_and_savings(scraped: Scraped) -> None:
    held(scraped)
    assert scraped.value("device_online", device="sim") == 1.0
    assert scraped.value("devices", health="holding") == 1.0
    assert scraped.value("devices", health="offline") == 0.0
    assert scraped.value("applied_knob", device="sim", knob="gpu.clock_mhz") == 600.0
    assert scraped.value("studies", phase="holding") == 1.0
    latency = {"device": "sim", "workload": "inference", "metric": "latency_p99"}
    assert scraped.value("held_latency_seconds", **latency) == pytest.approx(0.1)
    power = {"device": "sim", "workload": "inference", "origin": "measured"}
    assert scraped.value("held_power_watts", **power) == pytest.approx(500.0)
    assert scraped.value("held_limit_broken", device="sim", study="s1") == 0.0
    trials = len(scraped.world.store.trials.list("s1"))
    series = scraped.told()
    assert sum(v for (name, _), v in series.items() if name == "jouletune_trials") == trials
    assert scraped.value("saved_joules", origin="measured") is not None
    saving = scraped.value("study_saving_ratio", study="s1")
    assert saving is not None
    assert 0.0 < saving < 1.0
    assert scraped.value("studies_pending") == 0.0


def test_a_device_that_holds_no_more_shows_no_window_of_its_hold(scraped: Scraped) -> None:
    held(scraped)
    scraped.world.ask()
    series = scraped.told()
    assert not [name for name, _ in series if name.startswith("jouletune_held")]
    assert scraped.value("restores_total", device="sim") == 1.0


def test_series_of_a_device_carry_the_labels_that_were_chosen(scraped: Scraped) -> None:
    held(scraped)
    plain = scraped.told()
    names = {label for _, labels in plain if "device" in dict(labels) for label, _ in labels}
    assert names <= OWN_METRIC_LABELS
    labels = {"rack": "a1", "room": "2"}
    scraped.world.loop.register(device("sim", labels=labels))
    scraped.world.loop.register(device("bare"))
    fleet = FleetOverview(scraped.verbs, scraped.summaries)
    scraped.metrics = Metrics(
        fleet, scraped.counts, "1.2.3", scraped.world.time.monotonic, ["rack"]
    )
    assert scraped.value("device_online", device="sim", rack="a1") == 1.0
    assert scraped.value("device_online", device="bare", rack="") == 1.0
    assert scraped.value("devices", health="holding") == 1.0
    series = scraped.told()
    assert all(dict(of).get("rack") == "a1" for _, of in series if dict(of).get("device") == "sim")
    assert len([1 for _, of in series if dict(of).get("device") == "sim"]) == len(
        [1 for _, of in plain if dict(of).get("device") == "sim"]
    )


def test_a_silent_device_is_offline_and_a_forgotten_one_gone(scraped: Scraped) -> None:
    scraped.world.loop.register(device("sim"))
    scraped.world.time.sleep(3600.0)
    assert scraped.value("device_online", device="sim") == 0.0
    assert scraped.value("devices", health="offline") == 1.0
    scraped.world.store.devices.forget("sim")
    assert scraped.value("device_online", device="sim") is None


def test_a_knob_of_words_is_shown_as_such_and_a_switch_as_a_number(scraped: Scraped) -> None:
    scraped.world.loop.register(device("sim"))
    at = {**setting(), "allocator": "glibc", "fused": True}
    poll = Poll(agent="host/1", applied=applied("sim", Level.ORIGINAL, at))
    scraped.world.loop.order("sim", poll)
    words = {"device": "sim", "knob": "allocator", "value": "glibc"}
    assert scraped.value("applied_knob_info", **words) == 1.0
    assert scraped.value("applied_knob", device="sim", knob="fused") == 1.0


def test_beyond_the_limits_devices_and_knobs_have_no_series_and_that_is_reported(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_metrics, "MOST_DEVICES", 2)
    monkeypatch.setattr(fleet_metrics, "MOST_KNOBS", 1)
    for name in "abc":
        scraped.world.loop.register(device(name))
        scraped.world.ask(name)
    series = scraped.told()
    assert len([1 for name, _ in series if name == "jouletune_device_online"]) == 2
    assert len([1 for name, _ in series if name == "jouletune_applied_knob"]) == 2
    assert scraped.value("devices_left_out") == 1.0


def test_a_scrape_reads_no_trial_and_is_the_same_for_some_seconds(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(scraped)
    for name in ("list", "running", "reports"):
        monkeypatch.setattr(Trials, name, lambda *_: pytest.fail("trials were read"))
    series = scraped.told()
    assert any(name == "jouletune_trials" for name, _ in series)
    monkeypatch.setattr(Devices, "list", lambda *_: pytest.fail("it was read again"))
    scraped.metrics.text()


def test_without_its_database_the_tuner_reports_that_and_its_counters(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(scraped)

    def away(*_: object) -> NoReturn:
        raise StoreError("gone")

    monkeypatch.setattr(Devices, "list", away)
    assert scraped.value("database_up") == 0.0
    assert scraped.value("device_online", device="sim") is None
    assert scraped.value("trials_ended_total", state="completed") == 8.0


def test_a_lagging_destination_is_reported(scraped: Scraped) -> None:
    store = scraped.world.store
    store.deliveries.put(Delivery("slack", 0, attempts=3, given_up=2))
    scraped.world.loop.changes.note("drift", "x")
    scraped.world.loop.changes.note("drift", "y")
    assert scraped.value("notification_events_behind", destination="slack") == 2.0
    assert scraped.value("notification_failed_attempts", destination="slack") == 3.0
    assert scraped.value("notifications_given_up_total", destination="slack") == 2.0
    assert scraped.value("events_total", kind="drift") == 2.0


def test_no_name_that_a_device_gives_itself_breaks_the_format(scraped: Scraped) -> None:
    hostile = device('x"} 1\njouletune_devices{health="safe')
    scraped.world.loop.register(hostile)
    series = scraped.told()
    assert ("jouletune_device_online", frozenset({("device", hostile.id)})) in series
    assert scraped.value("devices", health="safe") == 1.0


def test_the_pages_of_browsers_leave_the_figures_to_prometheus(scraped: Scraped) -> None:
    async def pages(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("a page")(scope, receive, send)

    app = create_app(
        scraped.verbs,
        ADMIN,
        frozenset({"testserver"}),
        "0",
        metrics=scraped.metrics,
        pages=lambda _: pages,
    )
    headers = {"Authorization": f"Bearer {ADMIN}"}
    with TestClient(app) as client:
        assert "jouletune_devices" in client.get("/metrics", headers=headers).text
        assert client.get("/metricsandmore", headers=headers).text == "a page"


def test_a_scrape_reads_only_studies_that_have_changed(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(scraped)
    read: list[object] = []
    stored = Studies.stored

    def counted(self: Studies, **given: Any) -> Any:  # noqa: ANN401
        read.append(given)
        return stored(self, **given)

    monkeypatch.setattr(Studies, "stored", counted)
    assert scraped.value("studies", phase="holding") == 1.0
    assert not read
    scraped.verbs.pause("s1", Change(who="ann"))
    assert scraped.value("studies", phase="paused") == 1.0
    assert read
