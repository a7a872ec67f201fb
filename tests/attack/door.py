"""Callers without a token, a compromised agent, and a viewer that opens every stream."""

from __future__ import annotations

import http.client
import json
import time
from urllib.parse import urlencode

from tests.attack.site import AGENT_TOKEN, Scenario, Site, at_once
from tests.builders import applied

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def login_flood(site: Site, told: Scenario) -> None:
    """Send two thousand wrong sign-ins from one address, then the right one from there."""
    size = site.database_bytes
    with site.watched(told):
        seen = at_once(
            2_000,
            16,
            lambda n: site.ask(
                "POST", "/login", raw=urlencode({"token": f"ann.{n}"}).encode(), **FORM
            )[0],
        )
        right = site.ask(
            "POST", "/login", raw=urlencode({"token": site.operator}).encode(), **FORM
        )[0]
    told.counts |= {"answers": {str(k): v for k, v in seen.items()}, "right_token": right}
    told.expect(right == 303, f"the right token was answered {right}")
    told.expect(set(seen) <= {401, 429}, f"wrong tokens were answered {set(seen)}")
    told.expect(site.database_bytes - size < 1_000_000, "the database grew")


def form_bombs(site: Site, told: Scenario) -> None:
    """Send forms of 8 MiB, with many fields, and without a declared length, before login."""
    bombs = {
        "8 MiB of a&": b"a&" * (4 * 1024 * 1024),
        "16 kB of a&": b"a&" * 8_000,
        "33 fields": b"&".join(b"a%d=1" % n for n in range(33)),
    }
    with site.watched(told):
        for name, bomb in bombs.items():
            statuses = {site.ask("POST", "/login", raw=bomb, **FORM)[0] for _ in range(3)}
            told.counts[name] = sorted(statuses)
            told.expect(statuses <= {0, 413, 422}, f"{name}: {statuses}")
        for token in (AGENT_TOKEN, site.operator):
            body = b"[" + b"[]," * (8 * 1024 * 1024 // 3) + b"0]"
            status = site.ask("POST", "/v1/devices/x/next", token, raw=body)[0]
            told.expect(status in (0, 413), f"8 MiB of JSON: {status}")
        chunks = iter([b"a&" * 4_096] * 512)
        line = http.client.HTTPConnection("127.0.0.1", site.played.tuner_port, timeout=60.0)
        try:
            line.request("POST", "/login", body=chunks, headers=FORM, encode_chunked=True)
            status = line.getresponse().status
        except OSError:
            status = 0
        line.close()
        told.counts["chunked"] = status
        told.expect(status in (0, 413), f"4 MiB in chunks: {status}")


def foreign_origins(site: Site, told: Scenario) -> None:
    """Send five thousand requests with a foreign origin: they must be counted, not stored."""
    size, counted = site.database_bytes, site.refused(403)
    with site.watched(told):
        seen = at_once(
            5_000, 16, lambda n: site.ask("GET", "/v1/health", Origin=f"http://evil{n}.example")[0]
        )
    time.sleep(5.5)  # a scrape's answer is cached for 5 s
    told.counts |= {
        "answers": {str(k): v for k, v in seen.items()},
        "grown_bytes": site.database_bytes - size,
        "counted": site.refused(403) - counted,
    }
    told.expect(seen[403] == 5_000, f"they were answered {dict(seen)}")
    told.expect(site.database_bytes - size < 500_000, "the audit log is a stranger's")
    told.expect(told.counts["counted"] == 5_000, "not every refusal was counted")


def wrong_tokens(site: Site, told: Scenario) -> None:
    """Send wrong tokens of every form, and between them new valid tokens from the same address."""
    right: list[int] = []
    agents: list[int] = []
    fresh = [
        str(site.played.call("POST", "/tokens", {"name": f"fresh-{n}", "role": "viewer"})["token"])
        for n in range(9)
    ]

    def one(n: int) -> int:
        if n % 400 == 200:
            status = site.ask("GET", "/v1/studies", fresh[n // 400])[0]
            right.append(status)
            return -status
        if n % 400 == 300:
            path = f"/v1/devices/{site.device}"
            status = site.ask("PUT", path, AGENT_TOKEN, site.registration)[0]
            agents.append(status)
            return -status
        guess = (f"ann.{n}", f"{n}", f"fresh-3.{n}", "x" * 2_000)[n % 4]
        return site.ask("GET", "/v1/studies", guess)[0]

    with site.watched(told):
        seen = at_once(3_600, 16, one)
    told.counts |= {"right": right, "agent": agents, "wrong": {str(k): v for k, v in seen.items()}}
    told.expect(right == [200] * 9, f"right tokens were answered {right}")
    told.expect(agents == [200] * 9, f"the agent was answered {agents}")


def unable_without_end(site: Site, told: Scenario) -> None:
    """Report a new, long reason each time why a compromised agent's device accepts no orders."""
    site.ask("PUT", f"/v1/devices/{site.device}", AGENT_TOKEN, site.registration)
    size = site.database_bytes
    now = applied(site.device)
    poll = {
        "agent": "mallory/1",
        "applied": {
            "device": site.device,
            "setting": dict(now.setting),
            "level": str(now.level),
            "at": now.at.isoformat(),
        },
    }
    with site.watched(told):
        path = f"/v1/devices/{site.device}/next"
        large = at_once(
            40,
            4,
            lambda n: site.ask(
                "POST", path, AGENT_TOKEN, {**poll, "unable": f"{n}" + "x" * 7_500_000}
            )[0],
        )
        small = at_once(
            400,
            4,
            lambda n: site.ask(
                "POST", path, AGENT_TOKEN, {**poll, "unable": f"{n}" + "x" * 200_000}
            )[0],
        )
    described = json.loads(json.dumps(site.registration))
    described["device"]["cannot"] = {f"m{n}": "x" * 900 for n in range(5_000)}
    wide = site.ask("PUT", f"/v1/devices/{site.device}", AGENT_TOKEN, described)[0]
    events = site.ask("GET", "/v1/events?last=10000", site.admin)[1]
    grown = site.database_bytes - size
    told.counts |= {
        "7.5 MB": {str(k): v for k, v in large.items()},
        "200 kB": {str(k): v for k, v in small.items()},
        "description of 5 MB": wide,
        "grown_bytes": grown,
        "events_bytes": len(events),
    }
    told.expect(set(large) <= {0, 413}, f"7.5 MB were answered {dict(large)}")
    told.expect(wide in (0, 413, 422), f"a description of 5 MB was answered {wide}")
    told.expect(grown < 10_000_000, f"the database grew by {grown} bytes")
    told.expect(len(events) < 3_000_000, f"the events are {len(events)} bytes")


def event_streams(site: Site, told: Scenario) -> None:
    """Open as many event streams as one viewer can; others must still be served."""
    open_lines: list[http.client.HTTPConnection] = []
    statuses: list[int] = []
    with site.watched(told):
        for _ in range(400):
            line = http.client.HTTPConnection("127.0.0.1", site.played.tuner_port, timeout=30.0)
            try:
                headers = {"Authorization": f"Bearer {site.viewer}"}
                line.request("GET", "/v1/events/stream", headers=headers)
                statuses.append(line.getresponse().status)
            except OSError:
                statuses.append(0)
            open_lines.append(line)
        operator = site.ask("GET", "/v1/studies", site.operator)[0]
        agent = site.ask("PUT", f"/v1/devices/{site.device}", AGENT_TOKEN, site.registration)[0]
    for line in open_lines:
        line.close()
    told.counts |= {
        "streams": statuses.count(200),
        "refused": statuses.count(429),
        "files": site.process.num_fds(),
        "operator": operator,
        "agent": agent,
    }
    told.expect(0 < statuses.count(200) < 400, f"{statuses.count(200)} of 400 streams are open")
    told.expect((operator, agent) == (200, 200), f"others were answered {(operator, agent)}")
