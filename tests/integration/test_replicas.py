"""The promises about several tuners on one PostgreSQL, with real processes and real kills."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.fleet.site import ADMIN, Ordeal, Site, Workforce, assert_whole, draft, site
from tests.processes import until

pytestmark = pytest.mark.postgres

TRIALS = 4
ALONE, TOGETHER = 12, 8


def tuned(played: Site, window_s: float, trials: int) -> list[str]:
    """Create studies of one device each, and two of four devices."""
    wanted = [[f"fleet-{n}"] for n in range(ALONE)]
    wanted += [[f"fleet-{ALONE + 4 * s + n}" for n in range(4)] for s in range(TOGETHER // 4)]
    return [
        str(played.call("POST", "/studies", draft(devices, trials, window_s))["id"])
        for devices in wanted
    ]


def suffers(played: Site, ordeal: Ordeal, window_s: float, trials: int) -> None:
    with Workforce(played.balancer.port, ALONE + TOGETHER) as agents:
        studies = tuned(played, window_s, trials)
        ordeal.inflict(played)
        until(
            lambda: all(s["phase"] == "holding" for s in played.call("GET", "/studies")),
            lambda: str(
                [(s["id"], s["phase"], s["unable"]) for s in played.call("GET", "/studies")]
            ),
            300.0,
        )
        until(lambda: agents.traffic.holding == ALONE + TOGETHER, "not every device holds")
        assert_whole(played.url, studies, trials)
        for study in studies:
            played.call("POST", f"/studies/{study}/stop", {"why": "it is over"})
        until(lambda: agents.traffic.holding == 0, "a device is left altered")


@pytest.mark.slow
@pytest.mark.promise(
    "one of several tuners dies or loses PostgreSQL, or PostgreSQL restarts",
    "the others continue; no trial is lost or doubled, no study is stuck, no device "
    "stays altered; another replica becomes the leader",
)
def test_replicas_killed_cut_off_and_without_database_lose_no_trial(tmp_path: Path) -> None:
    with site(tmp_path, 3) as played:
        ordeal = Ordeal(seconds=20.0, every_s=5.0, cut_s=2.0, restarts=1)
        suffers(played, ordeal, 0.5, TRIALS)
        assert ordeal.done["tuners killed"] >= 2 and ordeal.done["database restarts"] == 1


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_replicas_go_through_ten_minutes_of_it(tmp_path: Path) -> None:
    with site(tmp_path, 3) as played:
        ordeal = Ordeal(seconds=600.0, every_s=20.0, cut_s=30.0, restarts=3)
        suffers(played, ordeal, 5.0, 40)
        assert ordeal.done["tuners killed"] >= 10


@pytest.mark.promise("one of several tuners dies or loses PostgreSQL, or PostgreSQL restarts")
@pytest.mark.slow
def test_every_replica_knows_a_change_made_at_another(tmp_path: Path) -> None:
    """Tokens, revocations, sessions and stops: the next request may go to another tuner."""
    with site(tmp_path, 2) as played:
        one, other = (f"http://127.0.0.1:{t.tuner_port}" for t in played.tuners)
        made = played.call("POST", "/tokens", {"name": "vera", "role": "viewer"})["token"]
        as_vera = {"Authorization": f"Bearer {made}"}
        for url in (one, other):
            assert httpx2.get(f"{url}/v1/studies", headers=as_vera).status_code == 200
        signed = httpx2.post(f"{one}/login", data={"token": made})
        cookies = dict(signed.cookies)
        page = {"Accept": "text/html"}
        assert cookies
        assert httpx2.get(f"{other}/studies", cookies=cookies, headers=page).status_code == 200

        admin = {"Authorization": f"Bearer {ADMIN}"}
        assert httpx2.delete(f"{one}/v1/tokens/vera", headers=admin).status_code < 300
        until(
            lambda: httpx2.get(f"{other}/v1/studies", headers=as_vera).status_code == 401,
            "the other tuner still believes a revoked token",
            10.0,
        )
        gone = httpx2.get(f"{other}/studies", cookies=cookies, headers=page)
        assert gone.status_code == 303
