from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from agents.agent.observing import ObservingAgent
from agents.agent.surroundings import Surroundings
from agents.config import Attachment, load_agent_config
from agents.host.host import Host
from agents.target.measured import MeasuredTarget
from agents.target.observe import Observer
from agents.target.side import MeasuredSide
from agents.target.window import Usage
from tests.errors import raised
from tests.fakes import Rig
from tuner.core import ConfigError, Estimate


def test_its_target_has_no_actuator_by_type() -> None:
    (of,) = get_args(get_type_hints(Observer)["target"])
    assert of is MeasuredSide
    assert "actuator" not in {field.name for field in dataclasses.fields(MeasuredSide)}
    assert not {"apply", "restore", "hold", "caps"} & {*dir(MeasuredTarget)}
    assert "Target" not in str(get_type_hints(ObservingAgent.__init__))


@pytest.mark.parametrize(
    ("table", "why"),
    [("observe_s = 5.0", "observe"), ("observe = true\nobserve_s = 0.5", "1 s or more")],
)
def test_an_interval_is_heeded_or_refused(tmp_path: Path, table: str, why: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'[[device]]\nspec = "cpu"\n{table}\n')
    with raised(ConfigError, why):
        load_agent_config(file)
    file.write_text('[[device]]\nspec = "cpu"\nobserve = true\nobserve_s = 5.0\n')
    assert load_agent_config(file).devices == (Attachment("cpu", observe=True, observe_s=5.0),)


def test_an_unexpected_error_of_a_meter_ends_the_loop(tmp_path: Path) -> None:
    def shows(began: float, now: float) -> dict[str, Estimate]:
        raise ZeroDivisionError

    rig = Rig(tmp_path, shows=shows)
    around = Surroundings(
        link=rig.link, journal=rig.journal, host=Host("host", rig.boot, 2), clock=rig.time,
        now=rig.time.now, stop=rig.stop, start="start-1",
    )  # fmt: skip
    target, usage, rng = rig.target.measured, Usage(2, rig.own_cpu_s), random.Random(0)
    device = target.describe("fake@host", "agent@host", {}, rig.time.now())
    observer = Observer(target=target, host_clock=rig.time, now=rig.time.now, usage=usage)
    with pytest.raises(ZeroDivisionError):
        ObservingAgent(device, observer, 60.0, around, rng, lambda: None).run()
