"""Choosing a device by its name."""

from __future__ import annotations

import ast
import sys

import pytest

from agents.devices.catalogue import DEVICES, known_truth, open_device, specs_in
from tests.errors import raised
from tests.processes import run_to_end
from tuner import installed
from tuner.core import InvalidInput


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "simulated:a100"),
        ("toaster", "no device 'toaster'"),
        ("simulated", "choose one of a100, a100-host, v100, a40, orin, tx2"),
        ("simulated:h100", "choose one of a100, a100-host, v100, a40, orin, tx2"),
        ("simulated:a100/tetris", "choose one of resnet50, bert, efficientnet"),
        ("replay:nowhere.csv#x", r"nowhere\.csv"),
        ("replay:", "CSV"),
    ],
)
def test_a_missing_name_is_answered_with_the_existing_ones(spec: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        open_device(spec, seed=0, state_dir=None)
    with pytest.raises(InvalidInput, match=words):
        known_truth(spec)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("replay:table.csv#one", "replay"),
        ("cpu+replay:table.csv#one", "replay"),
        ("simulated:h100-llm", "simulated:h100-llm"),
        ("simulated:l20-llm/qwen2.5-7b@3", "simulated:l20-llm"),
    ],
)
def test_checkout_only_features_are_refused_by_package_name(
    spec: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "entry_points", lambda **_: ())
    one = specs_in(spec)[-1]
    for ask in (known_truth, lambda spec: open_device(spec, seed=0, state_dir=None)):
        with raised(InvalidInput, f"'{name}' needs the package jouletune_bench", "tests/bench"):
            ask(one)


def test_a_preset_runs_its_first_workload_by_default() -> None:
    plain = open_device("simulated:orin", seed=0, state_dir=None)
    assert plain.name == open_device("simulated:orin/resnet50", seed=0, state_dir=None).name
    assert plain.name != open_device("simulated:orin/bert", seed=0, state_dir=None).name


def test_a_real_device_has_no_known_truth() -> None:
    assert known_truth("cpu") is None


def test_kinds_are_imported_only_when_chosen() -> None:
    script = (
        "import sys; from agents.devices.catalogue import open_device;"
        "open_device('cpu', seed=0, state_dir=None);"
        "print([m for m in sys.modules if m.startswith('agents.devices.')])"
    )
    done = run_to_end([sys.executable, "-c", script], check=True)
    loaded = ast.literal_eval(done.stdout)
    assert {name.split(".")[2] for name in loaded} == {"catalogue", "cpu"}
    assert set(DEVICES) == {"cpu", "drm", "jetson", "nvidia", "simulated", "unit"}


@pytest.mark.parametrize(
    ("spec", "alone"),
    [
        ("cpu", ["cpu"]),
        ("nvidia:0+cpu", ["nvidia:0", "cpu"]),
        ("cpu+simulated:a100/bert", ["cpu", "simulated:a100/bert"]),
        ("replay:/tables/a+b.csv#x+y", ["replay:/tables/a+b.csv#x+y"]),
        ("nvidia:0+cpux", ["nvidia:0+cpux"]),
    ],
)
def test_a_spec_is_split_where_another_device_begins(spec: str, alone: list[str]) -> None:
    assert specs_in(spec) == alone


def test_several_devices_together_have_no_known_truth() -> None:
    assert known_truth("simulated:a100+cpu") is None
    assert known_truth("cpu+simulated:a100") is None
