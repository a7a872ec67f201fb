"""A real Prometheus beside a real tuner, agent, actuator and node exporter."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agents.devices.fake import knobs as fake
from tests.integration.stage import Stage, stage
from tests.integration.test_control_windows import BRISK
from tests.processes import reserved_port, run_to_end, until
from tests.unit.agents.actuator.site import GPU, LIMIT, Site
from tuner.cli.app import main as jouletune

DEPLOY = Path(__file__).parents[2] / "deploy"
PROGRAMS = ("prometheus", "promtool", "prometheus-node-exporter")
TERMS = {"trials": 3, "window_s": 1.5, "max_window_s": 3.0}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in PROGRAMS),
        reason="no Prometheus here: apt install prometheus prometheus-node-exporter",
    ),
]


@dataclass
class Monitored:
    """All processes, and a Prometheus with the shipped rules that scrapes them every second.

    The waits of the rules are shortened, so that a due alert fires at once.
    """

    played: Stage
    site: Site
    port: int
    agent_port: int
    toy: int
    studies: tuple[str, ...] = ()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the present result of an expression."""
        answer = self._ask("query", query=expression)
        assert answer["data"]["resultType"] == "vector", expression
        return list(answer["data"]["result"])

    def value(self, expression: str) -> float | None:
        """Return the only value of an expression; None if there is none."""
        samples = self.query(expression)
        assert len(samples) < 2, samples
        return float(samples[0]["value"][1]) if samples else None

    def becomes(self, expression: str, right: Callable[[float], bool]) -> None:
        """Wait until the only value of an expression is as expected."""

        def is_right() -> bool:
            value = self.value(expression)
            return value is not None and right(value)

        until(is_right, lambda: f"{expression} is {self.query(expression)}")

    def fires(self, alert: str) -> dict[str, Any]:
        """Wait until an alert fires and return it."""
        matching: list[dict[str, Any]] = []

        def firing() -> bool:
            alerts = self._ask("alerts")["data"]["alerts"]
            named = [a for a in alerts if a["labels"]["alertname"] == alert]
            matching[:] = [a for a in named if a["state"] == "firing"]
            return bool(matching)

        until(firing, lambda: f"{alert} does not fire: {self._ask('alerts')['data']}")
        return matching[0]

    def textfile(self) -> Path:
        """Write the actuator's metrics, as the timer does, and return the file."""
        file = self.played.folder / "textfile" / "jouletune.prom"
        assert jouletune(["actuator", "metrics", str(file), "--config", str(self.site.config)]) == 0
        return file

    def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}"
        answer = httpx2.get(url, params=parameters, timeout=10.0)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """Run one study to its hold on a simulated A100, and one on a toy workload on this machine."""
    folder = tmp_path_factory.mktemp("monitored")
    webhook = f'[[webhook]]\nname = "away"\nurl = "http://127.0.0.1:{reserved_port()}/"\n'
    site = Site(tmp_path_factory.mktemp("actuator"))
    with stage(folder, f"lease_s = 3.0\n{webhook}") as played:
        played.tuner = BRISK
        made = Monitored(played, site, reserved_port(), reserved_port(), toy=played.start_toy())
        try:
            site.serve()
            played.start_tuner()
            start_prometheus(made)
            simulated = (f'[[device]]\nspec = "simulated:{name}"\n' for name in ("a100", "orin"))
            played.agent_toml = f'metrics = "127.0.0.1:{made.agent_port}"\n{"".join(simulated)}'
            played.start_agent("cpu", f"http://127.0.0.1:{made.toy}")
            made.textfile()
            until(lambda: len(played.call("GET", "/devices")) == 3, lambda: played.log("agent"))
            a100, toy = sorted_ids(played)
            made.studies = (
                played.create(
                    devices=[a100], constraints=["latency_p99_ms <= 2x baseline"], terms=TERMS
                ),
                played.create(
                    devices=[toy],
                    objective="latency_mean_ms",
                    constraints=["latency_mean_ms <= 2x baseline"],
                    terms=TERMS,
                ),
            )
            hopeless = played.create(
                devices=[named(played, "orin")],
                constraints=["latency_p99_ms <= 0.001"],
                terms=TERMS,
            )
            for study in (*made.studies, hopeless):
                played.await_phase(study, "holding", 120.0)
            yield made
        finally:
            for process in site.processes:
                process.kill()
                process.wait()


def sorted_ids(played: Stage) -> tuple[str, str]:
    """Return the ids of the simulated device and of the CPU."""
    return named(played, "a100"), named(played, "cpu")


def named(played: Stage, part: str) -> str:
    """Return the id of the only device with this word in its id."""
    (device,) = [d for d in played.call("GET", "/devices") if part in d["device"]["id"]]
    return str(device["device"]["id"])


def start_prometheus(made: Monitored) -> None:
    """Start Prometheus and a node exporter, configured by the shipped examples."""
    folder, exporter = made.played.folder, reserved_port()
    draft = {"name": "prometheus", "role": "viewer"}
    token = made.played.call("POST", "/tokens", draft)["token"]
    (folder / "viewer").write_text(token)
    rules = (DEPLOY / "prometheus/rules.yml").read_text()
    (folder / "rules.yml").write_text(re.sub(r"for: \w+", "for: 0s", rules))
    config = (DEPLOY / "prometheus/scrape.yml").read_text()
    for told, here in (
        ("interval: 15s", "interval: 1s"),
        ("/etc/prometheus/jouletune-rules.yml", str(folder / "rules.yml")),
        ("/etc/prometheus/jouletune-token", str(folder / "viewer")),
        ("127.0.0.1:8790", f"127.0.0.1:{made.played.tuner_port}"),
        ("127.0.0.1:9464", f"127.0.0.1:{made.agent_port}"),
        ("127.0.0.1:9100", f"127.0.0.1:{exporter}"),
    ):
        assert told in config
        config = config.replace(told, here)
    (folder / "prometheus.yml").write_text(config)
    promtool("check", "config", str(folder / "prometheus.yml"))
    (folder / "textfile").mkdir()
    made.played.spawn(
        "exporter",
        [
            "prometheus-node-exporter",
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={folder / 'textfile'}",
            f"--web.listen-address=127.0.0.1:{exporter}",
        ],
    )
    made.played.spawn(
        "prometheus",
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{made.port}",
            "--log.level=warn",
        ],
    )

    def ready() -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(f"http://127.0.0.1:{made.port}/-/ready").status_code == 200
        return False

    until(ready, lambda: f"no Prometheus: {made.played.log('prometheus')}")


def promtool(*arguments: str, given: str = "") -> str:
    """Run promtool, which must succeed, and return its output."""
    done = run_to_end(["promtool", *arguments], input=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def scraped(monitored: Monitored) -> tuple[str, str]:
    """Return the tuner's metrics for a viewer, and the agent's for this host."""
    token = (monitored.played.folder / "viewer").read_text()
    tuner = httpx2.get(
        f"http://127.0.0.1:{monitored.played.tuner_port}/metrics",
        headers={"Authorization": f"Bearer {token}"},
    )
    agent = httpx2.get(f"http://127.0.0.1:{monitored.agent_port}/metrics")
    return tuner.text, agent.text


def queries() -> list[str]:
    """Return every expression of the dashboard, its variables filled in."""
    dashboard = json.loads((DEPLOY / "grafana/jouletune.json").read_text())
    expressions = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", ())]
    return [e.replace("$device", ".*").replace("$__rate_interval", "1m") for e in expressions]


def test_the_rules_are_sound_and_fire_when_they_should_and_not_before() -> None:
    promtool("check", "rules", str(DEPLOY / "prometheus/rules.yml"))
    promtool("test", "rules", str(DEPLOY.parent / "tests/prometheus/alerts.yml"))


def test_every_target_is_up_and_each_output_is_as_prometheus_wants_it(
    monitored: Monitored,
) -> None:
    until(
        lambda: [float(r["value"][1]) for r in monitored.query("up")] == [1.0] * 3,
        lambda: f"not all are up: {monitored.query('up')}",
    )
    for output in (*scraped(monitored), monitored.textfile().read_text()):
        assert "jouletune_" in output
        assert promtool("check", "metrics", given=output) == ""


def test_the_page_names_every_figure_and_no_other(monitored: Monitored) -> None:
    outputs = [*scraped(monitored), monitored.textfile().read_text()]
    names = {name for text in outputs for name in re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)}
    page = (DEPLOY.parent / "docs/monitoring.md").read_text()
    tables = "\n".join(line for line in page.splitlines() if line.startswith("| `jouletune_"))
    assert names == set(re.findall(r"`(jouletune_\w+)", tables))


def test_prometheus_has_what_the_tuner_and_the_agent_measured(monitored: Monitored) -> None:
    simulated, toy = sorted_ids(monitored.played)
    of = f'{{device="{simulated}"}}'
    monitored.becomes(f"jouletune_energy_joules_total{of}", lambda joules: joules > 0.0)
    (energy,) = monitored.query(f"jouletune_energy_joules_total{of}")
    assert energy["metric"]["origin"] == "simulated"
    monitored.becomes(f"jouletune_agent_energy_joules_total{of}", lambda joules: joules > 0.0)
    monitored.becomes(
        f'jouletune_held_latency_seconds{{device="{toy}",metric="latency_mean"}}',
        lambda seconds: 0.001 < seconds < 1.0,
    )
    monitored.becomes(
        f'jouletune_applied_info{{device="{toy}",level="hold"}}', lambda one: one == 1
    )
    monitored.becomes(
        f'jouletune_knob{{device="{GPU}",knob="{LIMIT}"}}', lambda watts: watts == 400
    )
    monitored.becomes('jouletune_studies{phase="holding"}', lambda studies: studies == 3)
    studies = [study["id"] for study in monitored.played.call("GET", "/studies")]
    trials = sum(len(monitored.played.trials(study)) for study in studies)
    monitored.becomes("sum(jouletune_trials)", lambda known: known == trials)


def test_every_query_of_the_dashboard_returns_data(monitored: Monitored) -> None:
    def numbers(expression: str) -> list[float]:
        values = [float(row["value"][1]) for row in monitored.query(expression)]
        return [value for value in values if not math.isnan(value)]

    expressions = queries()
    assert len(expressions) > 30
    without = set(expressions)

    def all_answered() -> bool:
        without.difference_update([e for e in without if numbers(e)])
        return not without

    until(all_answered, lambda: f"these return nothing: {sorted(without)}")


def test_a_limit_that_nothing_keeps_raises_an_alert(monitored: Monitored) -> None:
    monitored.fires("JouletuneLimitNotMet")
    monitored.becomes('jouletune_devices{health="limit not met"}', lambda devices: devices == 1.0)


def test_a_device_that_another_program_sets_raises_an_alert(monitored: Monitored) -> None:
    from agents.actuator_client.client import open_remote
    from agents.host.machine import HostClock

    remote = open_remote(monitored.site.socket, GPU, HostClock())
    remote.hold({LIMIT: 250}, "s", 1, 3600.0)
    state = fake.load(monitored.site.hardware)
    state["devices"][GPU]["values"][LIMIT] = 222
    fake.save(monitored.site.hardware, state)
    until(lambda: bool(remote.conflict()), "nobody sees it")
    monitored.textfile()
    alert = monitored.fires("JouletuneDeviceAlteredWithoutLease")
    assert alert["labels"]["device"] == GPU
    remote.close()


def test_a_hold_that_breaks_its_limit_raises_an_alert_and_so_does_its_end(
    monitored: Monitored,
) -> None:
    _, toy = sorted_ids(monitored.played)
    ended = monitored.value('jouletune_events_total{kind="hold ended"}')
    assert ended == 0.0
    httpx2.put(f"http://127.0.0.1:{monitored.toy}/pace", json={"times": 12.0})
    monitored.fires("JouletuneHoldEnded")
    monitored.becomes('jouletune_violations_total{level="hold"}', lambda windows: windows >= 3.0)
    monitored.becomes(f'jouletune_restores_total{{device="{toy}"}}', lambda times: times >= 1.0)
    httpx2.put(f"http://127.0.0.1:{monitored.toy}/pace", json={"times": 1.0})


def test_a_killed_agent_raises_an_alert_and_its_return_ends_it(
    monitored: Monitored,
) -> None:
    simulated, toy = sorted_ids(monitored.played)
    monitored.played.kill("agent")
    alert = monitored.fires("JouletuneAgentSilent")
    assert alert["labels"]["device"] in (simulated, toy, named(monitored.played, "orin"))
    monitored.becomes('jouletune_devices{health="offline"}', lambda devices: devices == 3.0)
    monitored.played.start_agent("cpu", f"http://127.0.0.1:{monitored.toy}")
    monitored.becomes('jouletune_devices{health="offline"}', lambda devices: devices == 0.0)


def test_counters_restart_with_the_tuner_and_stored_values_continue(
    monitored: Monitored,
) -> None:
    before = monitored.value("sum(jouletune_trials)")
    ended = "sum(jouletune_trials_ended_total)"
    counted = monitored.value(ended)
    assert before is not None
    assert counted is not None
    monitored.played.kill("tuner")
    monitored.fires("JouletuneTunerDown")
    monitored.played.start_tuner()
    monitored.becomes("sum(jouletune_trials)", lambda trials: trials >= before)
    grown = monitored.value("sum(increase(jouletune_trials_ended_total[10m]))")
    assert grown is not None
    assert grown < 2.0 * counted, "a counter that begins anew must not pass for growth"
