"""An agent that invents joules, a tuner that answers an agent with bombs, and a journal on a dead disk."""

from __future__ import annotations

import copy
import math
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from tests.attack.site import AGENT_TOKEN, Scenario, Site
from tests.frozen.messages import MESSAGES
from tests.integration.stage import stage
from tests.unit.tuner.test_foreign_bodies import NAN, served
from tuner.wire import MOST_ORDER_BYTES

HELD_S = 60.0
WATCHED_S = 20.0


def invented_joules(site: Site, told: Scenario) -> None:
    """Report windows of 10^15 items, and the same minute two hundred times, of a hold in force."""
    from tests.attack.held import held_study

    study, device, setting = held_study(site)
    before = site.json(f"/v1/studies/{study}/report")["bill"]
    window = MESSAGES["hold-report"].model_dump(mode="json")["measurement"]
    codes: dict[str, int] = {}
    now = datetime.now(UTC)

    def tell(items: int, started_at: datetime) -> int:
        measured = copy.deepcopy(window)
        measured |= {"started_at": started_at.isoformat(), "seconds": HELD_S, "context": {}}
        measured["load"] = {"completed": items, "failed": 0}
        body = {
            "device": device, "study": study, "revision": site.json(f"/v1/studies/{study}")["revision"],
            "setting": setting, "measurement": measured,
        }  # fmt: skip
        return site.ask("POST", "/v1/holds/report", AGENT_TOKEN, body)[0]

    for _ in range(3):
        codes["10^15 items"] = tell(10**15, now)
    for n in range(200):
        codes["overlapping"] = tell(600, now + timedelta(milliseconds=n))
    after = site.json(f"/v1/studies/{study}/report")["bill"]
    saved = [(bill["whole"] or {}).get("saved_j") for bill in (before, after)]
    most = (max((e["mean"] for e in _energies(window)), default=1.0)) * 10 * 600
    told.expect(setting != site.json(f"/v1/studies/{study}")["baseline"]["setting"], "no hold")
    told.counts |= {
        "answers": codes,
        "holds": setting,
        "saved_j_before": saved[0],
        "saved_j_after": saved[1],
    }
    finite = saved[1] is None or math.isfinite(saved[1])
    told.expect(finite and abs(saved[1] or 0.0) <= most, f"an agent invented {saved[1]} J")


def _energies(window: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for name, e in window["estimates"].items() if name.startswith("energy")]


def bombs_for_an_agent(_site: Site, told: Scenario) -> None:
    """Answer a real agent with 400 MB in gzip, with an endless body, and with a window of NaN."""
    import gzip
    import tempfile

    bomb = gzip.compress(b" " * 400_000_000, 9)
    answers: dict[str, dict[str, Any]] = {
        "gzip": {"answer": bomb, "packed": True},
        "endless": {"answer": b" " * 65_536, "chunks": 4_000},
        "NaN": {"answer": NAN.encode()},
    }
    told.counts["most_answer_bytes"] = MOST_ORDER_BYTES
    for name, answer in answers.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            served(**answer) as (url, asked),
            stage(Path(folder)) as played,
        ):
            played.tuner_port = int(url.rpartition(":")[2])
            played.token_file.write_text("a-token-to-enrol-with-0123456789\n")
            played.start_agent("simulated:a100")
            grown, restarted = _watched(played.processes["agent"], asked)
            log = played.log("agent")
        told.counts[name] = {"peak_mb": round(grown / 1e6), "asked": len(asked)}
        told.expect(len(asked) > 0, f"{name}: the agent asked nothing: {log[-300:]}")
        told.expect(grown < 250_000_000, f"{name}: the agent took {grown / 1e6:.0f} MB")
        told.expect(not restarted, f"{name}: the agent ended")


def _watched(agent: subprocess.Popen[bytes], asked: list[str]) -> tuple[int, bool]:
    """Return an agent's peak memory while it polls for some time, and whether it ended."""
    peak, end = 0, time.monotonic() + WATCHED_S
    while time.monotonic() < end and agent.poll() is None:
        peak = max(peak, psutil.Process(agent.pid).memory_info().rss)
        if len(asked) >= 6:
            break
        time.sleep(0.05)
    return peak, agent.poll() is not None


def dead_journal(_site: Site, told: Scenario) -> None:
    """Attack a dead root process with an unwritable journal and a broken configuration."""
    import tempfile

    from tests.attack.journal import altered_device

    with tempfile.TemporaryDirectory() as folder:
        device = altered_device(Path(folder))
        told.counts["altered_before"] = device.altered()
        told.expect(
            bool(told.counts["altered_before"]), "nothing was altered: the attack is no use"
        )
        code, said = device.restore_with_broken_configuration()
        told.counts |= {"restore_exit": code, "said": said[-200:], "altered": device.altered()}
        told.expect(
            not device.altered(), "a broken configuration keeps devices from being put back"
        )
