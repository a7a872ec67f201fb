"""A comment is any user's text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.actuator.grants import Granted, load_config
from agents.job.wish import LONGEST, require_granted, wish_of
from tests.errors import raised
from tuner.errors import ConfigError, InvalidInput, NotFound, OutOfRange, UnknownKnob

GRANTS = Granted(match="jobs", grant={"gpu.power_limit_w": (150, 300)})
CAP = "gpu.power_limit_w"
NOWHERE = Path("nowhere")


@pytest.mark.parametrize(
    ("comment", "wish"),
    [
        ("", {}),
        ("any text; $(id)", {}),
        (" jouletune:gpu.power_limit_w=250", {}),
        ("jouletune:gpu.power_limit_w=250", {CAP: 250}),
        ("jouletune:gpu.power_limit_w=250.5,gpu.clock_mhz=900", {CAP: 250.5, "gpu.clock_mhz": 900}),
    ],
)
def test_a_wish_is_the_text_after_our_name(comment: str, wish: dict[str, float]) -> None:
    assert wish_of(comment, NOWHERE) == wish


@pytest.mark.parametrize(
    "text",
    [
        "", ",", "gpu.power_limit_w", "gpu.power_limit_w=", "gpu.power_limit_w=-1",
        "profile=", "profile=../x", "profile=a b", "profile=a,gpu.a=1",
        "gpu.power_limit_w=1e3", "gpu.power_limit_w=nan", "gpu.power_limit_w=250 ", "x=1", "../a=1",
        "gpu.power_limit_w=250\n", "gpu.power_limit_w=٢٥٠", "gpu.power_limit_w=250;reboot",
        "gpu.power_limit_w=1,gpu.power_limit_w=2", "gpu.a=1," * 40,
        ",".join(f"gpu.k{number}=1" for number in range(9)),
    ],
)  # fmt: skip
def test_text_of_another_form_is_refused(text: str) -> None:
    with raised(InvalidInput):
        wish_of(f"jouletune:{text}", NOWHERE)


@given(st.text(max_size=2 * LONGEST))
def test_no_text_is_more_than_knobs_and_finite_numbers(text: str) -> None:
    try:
        wish = wish_of(f"jouletune:{text}", NOWHERE)
    except (InvalidInput, NotFound):
        return
    assert 0 < len(wish) <= 8
    assert all(0 <= value < 1e9 for value in wish.values())
    assert "jouletune:" + ",".join(wish) == "jouletune:" + ",".join(
        part.partition("=")[0] for part in text.split(",")
    )


def held(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.hold.json").write_text(text)


def test_a_profile_is_the_tuned_part_of_a_hold_on_the_agents_disk(tmp_path: Path) -> None:
    row = {"setting": {CAP: 250, "gpu.clock_mhz": 900, "gpu.mem_clock_mhz": 5, "batch": 8}}
    order = {"study": "fast-1", "plan": {"rows": [{"setting": {}}, row]}}
    baseline = {CAP: 400, "gpu.clock_mhz": 1410, "gpu.mem_clock_mhz": 5, "batch": 4}
    whole: dict[str, Any] = {
        "order": {**order, "baseline": baseline},
        "row": 1,
        "ended": "it was stopped",
    }
    held(tmp_path, "node-gpu0", json.dumps(whole))
    assert wish_of("jouletune:profile=fast-1", tmp_path) == {CAP: 250, "gpu.clock_mhz": 900}
    with raised(NotFound, "fast-2", "fast-1"):
        wish_of("jouletune:profile=fast-2", tmp_path)
    target = tmp_path / "elsewhere"
    (tmp_path / "node-gpu0.hold.json").rename(target)
    (tmp_path / "node-gpu0.hold.json").symlink_to(target)
    os.mkfifo(tmp_path / "node-gpu1.hold.json")
    with raised(NotFound, "studies: none"):
        wish_of("jouletune:profile=fast-1", tmp_path)
    for name in ("node-gpu0", "node-gpu1"):
        (tmp_path / f"{name}.hold.json").unlink()
    number = json.dumps({**whole, "order": {**whole["order"], "study": 5}})
    for text in ("", "{", "[]", "9" * 9999, "[" * 9999, json.dumps({**whole, "row": 7}), number):
        held(tmp_path, "node-gpu0", text)
        with raised(NotFound, "studies: none"):
            wish_of("jouletune:profile=fast-1", tmp_path)


def test_a_job_gets_no_more_than_the_grant_for_jobs() -> None:
    require_granted({CAP: 150}, GRANTS)
    with raised(OutOfRange, CAP, "150 to 300"):
        require_granted({CAP: 301}, GRANTS)
    with raised(UnknownKnob, "gpu.clock_mhz", CAP):
        require_granted({"gpu.clock_mhz": 900}, GRANTS)


def test_the_table_of_jobs_is_read_strictly(tmp_path: Path) -> None:
    file = tmp_path / "actuator.toml"
    file.write_text(f'[job.grant]\n"{CAP}" = {{min=1, max=2}}\n')
    assert load_config(file).jobs.grant == {CAP: (1, 2)}
    file.write_text("")
    assert load_config(file).jobs.grant == {}
    for wrong in ("grants = {}", 'match = "*"', f'grant = {{"{CAP}" = {{min=1}}}}'):
        file.write_text(f"[job]\n{wrong}\n")
        with pytest.raises(ConfigError, match="job"):
            load_config(file)
