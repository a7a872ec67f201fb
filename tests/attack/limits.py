"""Inputs that once had no bound: watts, fleet files, series, bodies for llama-server; odd surroundings."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from tests.attack.site import AGENT_TOKEN, Scenario, Site
from tests.integration.stage import stage
from tests.unit.tuner.test_foreign_bodies import served

VIEWS = ("/v1/budgets", "/v1/studies", "/v1/fleet", "/metrics")
MOST_S, MOST_LARGE_S, MOST_TIMES = 3.0, 30.0, 8.0
"""Limits on a busy machine. When each chunk copied the whole body, a stream took 13 to 30 times as long."""


def _members(site: Site, watts: float) -> int:
    """Report a cap with this floor in watts for three devices; return the last HTTP status."""
    cap = {"name": "k", "floor": watts, "floor_w": watts, "default_w": watts, "default": watts}
    status = 0
    for device in ("a@edge", "b@edge", "c@edge"):
        registration = {
            **site.registration,
            "device": {**site.registration["device"], "id": device},
        }
        site.ask("PUT", f"/v1/devices/{device}", AGENT_TOKEN, registration)
        report = {"agent": "mallory", "knobs": [cap]}
        status = site.ask("POST", f"/v1/devices/{device}/budget", AGENT_TOKEN, report)[0]
    return status


def hostile_watts(site: Site, told: Scenario) -> None:
    """Add a host with a floor of 10^308 W to a group: the views answer, and other groups are divided."""
    told.expect(_members(site, 100.0) == 200, "no member")
    made = site.ask(
        "PUT", "/v1/budgets/first", site.operator, {"select": {"id": ["*"]}, "watts": 500.0}
    )
    told.expect(made[0] < 300, f"no budget: {made[1]!r}")
    told.counts["report"] = _members(site, 1e308)
    time.sleep(3.0)
    told.counts["views"] = {v: site.ask("GET", v, site.admin)[0] for v in VIEWS}
    told.expect(told.counts["report"] == 422, f"10^308 W: HTTP {told.counts['report']}")
    told.expect(set(told.counts["views"].values()) == {200}, "a view does not answer")


def fleet_file_bombs(site: Site, told: Scenario) -> None:
    """Send a viewer's fleet file with a list of 1,200 lines under an unknown key, and nested lists."""
    long = [f'  "{n:040d}",' for n in range(1_200)]
    files = {
        "long": ["[[group]]", 'name = "a"', 'select = { id = "*" }', "unknown = [", *long, "]"],
        "deep": ["a = " + "[" * 450 + "]" * 450],
    }
    for name, lines in files.items():
        began = time.monotonic()
        status, _ = site.ask("POST", "/v1/fleet/diff", site.viewer, {"lines": lines})
        told.counts[name] = (status, round(time.monotonic() - began, 2))
        told.expect(status == 422, f"{name}: HTTP {status}")
        told.expect(time.monotonic() - began < MOST_S, f"{name}: {told.counts[name][1]} s")


def series_bombs(_site: Site, told: Scenario) -> None:
    """Serve series that unpack to 862 MB, never end, or are deeply nested; a valid one is still read."""
    now = time.time()
    good = json.dumps([{"time": now - 3600, "value": 500.0}, {"time": now + 36000, "value": 500.0}])
    negative = good.replace("500.0", "-5.0")
    answers: dict[str, dict[str, Any]] = {
        "bomb": {"answer": gzip.compress(b" " * 862_000_000, 9), "packed": True},
        "drip": {"answer": b" ", "chunks": 100_000, "pause_s": 0.5},
        "deep": {"answer": b"[" * 100_000},
        "good": {"answer": good.encode()},
        "price": {"answer": negative.encode()},
    }
    with ExitStack() as held:
        played = held.enter_context(stage(Path(held.enter_context(tempfile.TemporaryDirectory()))))
        urls = {n: held.enter_context(served(**given))[0] for n, given in answers.items()}
        played.toml += 'currency = "EUR"\n[price_per_kwh]\n' + f'url = "{urls.pop("price")}/"\n'
        played.toml += "".join(f'[series.{name}]\nurl = "{url}/"\n' for name, url in urls.items())
        played.start_tuner()
        process, peak = psutil.Process(played.processes["tuner"].pid), 0
        before = process.memory_info().rss
        other = Site(played)
        _members(other, 100.0)
        body, read, end = (
            {"select": {"id": ["*"]}, "series": "good"},
            False,
            time.monotonic() + 60.0,
        )
        while not read and time.monotonic() < end:  # refused until the series is read: 0 W
            peak = max(peak, process.memory_info().rss - before)
            read = other.ask("PUT", "/v1/budgets/g", other.operator, body)[0] < 300
            time.sleep(0.1)
        log = played.log("tuner")
    told.counts |= {"read": read, "peak_mb": round(peak / 1e6)}
    told.expect(read, "the series after the bad ones was not read within 60 s")
    told.expect(peak < 300_000_000, f"the tuner took {peak / 1e6:.0f} MB")
    told.expect("-5.0" not in log, "negative prices are refused")


def megabytes_before_llama(_site: Site, told: Scenario) -> None:
    """Send 99 MB to the proxy in front of llama-server while another caller streams a hundred tokens."""
    from tests.llama.running import proxy_for
    from tests.unit.agents.workloads.engine.conftest import models, stand_in

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target, draft = models(folder)
        with proxy_for(stand_in("0.3.36", target, "--step-ms", "2"), {"d": draft}, folder) as proxy:
            host = proxy.url.removeprefix("http://")
            alone_s = min(_streamed_s(host) for _ in range(3))
            waits: list[float] = []
            sent = threading.Thread(target=_send_large, args=(host,))
            large_since = time.monotonic()
            sent.start()
            while sent.is_alive():
                waits.append(_streamed_s(host))
            sent.join()
            large_s = time.monotonic() - large_since
    told.counts |= {"asked": len(waits), "alone_s": round(alone_s, 2)}
    told.counts["worst_s"] = round(max(waits), 2)
    told.counts["large_s"] = round(large_s, 1)
    told.expect(large_s <= MOST_LARGE_S, f"99 MB took {large_s:.0f} s of the proxy's event loop")
    most_s = max(MOST_S, MOST_TIMES * alone_s)
    told.expect(max(waits) <= most_s, f"another request took {max(waits):.1f} s")


def _streamed_s(host: str) -> float:
    """Return the seconds of a stream of 100 tokens."""
    began = time.monotonic()
    _ask(host, "POST", "/completion", b'{"prompt": "x", "n_predict": 100, "stream": true}')
    return time.monotonic() - began


def _send_large(host: str) -> None:
    _ask(host, "POST", "/tokenize", b'{"content": "' + b"x" * 99_000_000 + b'"}')


def _ask(host: str, method: str, path: str, body: bytes) -> None:
    line = http.client.HTTPConnection(host, timeout=120.0)
    try:
        line.request(method, path, body)
        line.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass
    finally:
        line.close()


def named_database(site: Site, told: Scenario) -> None:
    """Send numbers that the database cannot store: no answer to an agent may name its file."""
    path = f"/v1/devices/{site.device}/next"
    site.ask("PUT", f"/v1/devices/{site.device}", AGENT_TOKEN, site.registration)
    applied = {
        "device": site.device,
        "setting": {},
        "level": "original",
        "at": "2026-01-01T00:00:00Z",
    }
    codes, named = [], 0
    for number in (2**63, 2**64, 10**30):
        body = {"agent": "mallory/1", "applied": {**applied, "revision": number}}
        status, answer = site.ask("POST", path, AGENT_TOKEN, body)
        codes.append(status)
        named += str(site.played.folder).encode() in answer or b"sqlite:" in answer
    told.counts |= {"answers": codes, "named": named}
    told.expect(not named, "an answer names the database's file")
    told.expect(set(codes) == {422}, f"HTTP {codes}")


NAMELESS = """
import pwd
def nobody(uid): raise KeyError(f'getpwuid(): uid not found: {uid}')
pwd.getpwuid = nobody
"""


def odd_surroundings(site: Site, told: Scenario) -> None:
    """Stop all devices as a user without a name; show the devices on a terminal in ISO 8859-1."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(NAMELESS)
        tuner = ["--tuner", f"http://127.0.0.1:{site.played.tuner_port}"]
        tuner += ["--token-file", str(site.played.token_file)]
        kept = {
            k: v for k, v in os.environ.items() if k not in ("USER", "LOGNAME", "LNAME", "USERNAME")
        }
        nameless = {**kept, "PYTHONPATH": f"{folder}:{Path.cwd()}"}
        latin = {**os.environ, "PYTHONIOENCODING": "ascii"}
        registered = {**site.registration}
        registered["device"] = {**registered["device"], "board": "a board \u2192 1 \u00b1 2"}
        site.ask("PUT", f"/v1/devices/{site.device}", AGENT_TOKEN, registered)
        runs = {
            "stop-all": (["stop-all", "--why", "x", "--yes", *tuner], nameless),
            "device list": (["device", "list", *tuner], latin),
            "device list --json": (["device", "list", "--json", *tuner], latin),
        }
        for name, (words, env) in runs.items():
            command = [str(Path(sys.executable).with_name("jouletune")), *words]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            told.counts[name] = done.returncode
            # 1: a device is offline, so its stop is not confirmed.
            told.expect(done.returncode in (0, 1), f"{name}: exit code {done.returncode}")
            crashed = "Traceback" in done.stderr or "Error" in done.stderr
            told.expect(not crashed, f"{name}: {done.stderr[-200:]}")
