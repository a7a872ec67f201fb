"""Kinds of workloads that were removed, and the page that replaces one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.host.machine import HostClock
from agents.workloads import REMOVED, open_workload
from agents.workloads.http.config import load_service_config
from tests.errors import raised
from tuner.core import InvalidInput

TOP = Path(__file__).parents[4]


@pytest.mark.parametrize("kind", REMOVED)
@pytest.mark.parametrize("address", ["", ":http://127.0.0.1:8265/app/Model"])
def test_a_removed_kind_is_refused_with_its_replacement(
    kind: str, address: str, tmp_path: Path
) -> None:
    with raised(InvalidInput, REMOVED[kind][1]):
        open_workload(kind + address, seed=0, state_dir=tmp_path, clock=HostClock())


def test_the_page_has_a_service_file_for_ray_serve(tmp_path: Path) -> None:
    page = (TOP / "docs" / "engines.md").read_text("utf-8").partition("## Ray Serve")[2]
    file = tmp_path / "ray.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    (knob,) = load_service_config(file).knobs
    assert (knob.name, knob.values) == ("replicas", (1, 2, 4))
