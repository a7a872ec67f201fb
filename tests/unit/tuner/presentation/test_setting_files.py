"""A setting as commands or a patch: what it sets, how it goes back, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.processes import run_to_end
from tuner.core import InvalidInput, Knob, Part
from tuner.presentation import setting_files
from tuner.presentation.setting_files import ReviewedSetting, SettingForm, setting_file

GPU = (
    Knob("gpu.clock_mhz", (900, 1410), 1410),
    Knob("gpu.power_limit_w", (200, 300), 300),
    Knob("gpu.mem_clock_mhz", (800, 1215), 1215),
)
CPU = (
    Knob("cpu.governor", ("performance", "powersave"), "powersave"),
    Knob("cpu.epp", ("balance_power", "performance"), "performance"),
    Knob("cpu.max_mhz", (1200, 3000), 3000),
)
OTHER = (Knob("cpu.uncore_mhz", (1200, 2400), 2400),)
WORK = (Knob("max-batch.size", (8, 64), 64, Part.WORKLOAD),)
REMARKS = ("saves 12.0 ± 0.4 %", "reason: a\nbreak\x1b[31m", "held since 2026-11-28")
COMMANDS = (SettingForm.SHELL, SettingForm.SYSTEMD, SettingForm.NVIDIA_SMI)


def reviewed(
    *knobs: Knob, devices: Sequence[str] = ("nvidia-0@host",), changed: bool = True
) -> ReviewedSetting:
    low = {knob.name: knob.values[0] if changed else knob.default for knob in knobs}
    return ReviewedSetting(low, {k.name: k.default for k in knobs}, devices, knobs, "work", REMARKS)


@pytest.mark.parametrize("form", SettingForm)
@pytest.mark.parametrize("knob", [*GPU, *CPU, *OTHER, *WORK], ids=lambda knob: str(knob.name))
def test_a_form_expresses_a_knob_or_refuses_it_by_name(form: SettingForm, knob: Knob) -> None:
    table = setting_files.COMMANDS.get(form)
    fits = form is SettingForm.JSON or (
        knob.part is Part.WORKLOAD if table is None else knob.name in table
    )
    if fits:
        text = setting_file(reviewed(knob), form)
        assert all(word in text for word in ("12.0", "2026-11-28")), text
        assert "put back" in text or form is SettingForm.JSON
    else:
        with pytest.raises(InvalidInput, match=re.escape(knob.name)):
            setting_file(reviewed(knob), form)


@pytest.mark.parametrize("form", [SettingForm.COMPOSE, SettingForm.HELM_VALUES])
def test_a_switch_is_lower_case_and_two_knobs_of_one_variable_are_refused(
    form: SettingForm,
) -> None:
    text = setting_file(reviewed(Knob("cache", (True, False), False, Part.WORKLOAD)), form)
    assert '"true"' in text and "CACHE=false" in text
    both = [Knob(name, (8, 64), 64, Part.WORKLOAD) for name in ("a.b", "a-b")]
    with pytest.raises(InvalidInput, match=r"a\.b and a-b"):
        setting_file(reviewed(*both), form)


def test_a_knob_at_its_baseline_needs_no_line() -> None:
    both = reviewed(*GPU, *OTHER)
    kept = replace(both, setting={**both.setting, "cpu.uncore_mhz": 2400})
    assert "uncore" not in setting_file(kept, SettingForm.SHELL)


@pytest.mark.parametrize("form", COMMANDS)
def test_a_remark_stays_a_comment(form: SettingForm) -> None:
    text = setting_file(reviewed(*GPU), form)
    assert "# reason: a break" in text and "\x1b" not in text


def test_the_way_back_resets_locks() -> None:
    lines = setting_file(reviewed(*GPU), SettingForm.NVIDIA_SMI).splitlines()
    at = lines.index("# put back:")
    assert [line for line in lines[:at] if not line.startswith("#")] == [
        "nvidia-smi --id=0 --power-limit=200",
        "nvidia-smi --id=0 --lock-memory-clocks=800,800",
        "nvidia-smi --id=0 --lock-gpu-clocks=0,900",
    ]
    assert lines[at + 1 :] == [
        "# nvidia-smi --id=0 --power-limit=300",
        "# nvidia-smi --id=0 --reset-memory-clocks",
        "# nvidia-smi --id=0 --reset-gpu-clocks",
    ]


def test_a_shell_writes_the_files_and_back(tmp_path: Path) -> None:
    policies = [tmp_path / f"cpufreq/policy{n}" for n in range(2)]
    files = ("scaling_governor", "energy_performance_preference", "scaling_max_freq")
    for policy in policies:
        policy.mkdir(parents=True)
        for file in files:
            (policy / file).write_text("was")
    text = setting_file(reviewed(*CPU, devices=("cpu@host",)), SettingForm.SHELL)
    script = text.replace(setting_files.CPU_FILES, str(tmp_path))

    def seen() -> list[str]:
        return [(policy / file).read_text().strip() for policy in policies for file in files]

    subprocess.run(["sh", "-eu"], input=script, text=True, check=True)
    assert seen() == ["performance", "balance_power", "1200000"] * 2
    back = [line[2:] for line in script.partition("# put back:\n")[2].splitlines()]
    subprocess.run(["sh", "-eu"], input="\n".join(back), text=True, check=True)
    assert seen() == ["powersave", "performance", "3000000"] * 2
    commands = [line for line in script.splitlines() if "echo" in line]
    governors = [n for n, line in enumerate(commands) if "scaling_governor" in line]
    preferences = [n for n, line in enumerate(commands) if "preference" in line]
    assert all(a < b for a, b in zip(governors, preferences, strict=True)), "performance fixes it"


@pytest.mark.parametrize(("before", "written"), [("powersave", True), ("performance", False)])
def test_a_governor_goes_back_with_the_preference_that_it_moves(before: str, written: bool) -> None:
    governor = Knob("cpu.governor", ("performance", "powersave", "schedutil"), before)
    of = reviewed(governor, CPU[1], devices=("cpu@host",))
    kept = replace(of, setting={"cpu.governor": "schedutil", "cpu.epp": of.baseline["cpu.epp"]})
    there, back = setting_file(kept, SettingForm.SHELL).split("# put back:")
    assert "preference" not in there and ("preference" in back) is written


def test_systemd_accepts_each_unit(tmp_path: Path) -> None:
    unit = tmp_path / "setting.service"
    unit.write_text(setting_file(reviewed(*CPU, *GPU), SettingForm.SYSTEMD))
    text = unit.read_text()
    assert text.count("ExecStart=/bin/sh") == text.count("ExecStopPost=-/bin/sh") == 6
    assert "> $$f" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    done = run_to_end(["systemd-analyze", "verify", str(unit)])
    assert "setting.service" not in done.stderr, done.stderr


def test_patches_are_yaml_with_the_workloads_knobs() -> None:
    one = reviewed(*WORK)
    compose = yaml.safe_load(setting_file(one, SettingForm.COMPOSE))
    assert compose == {"services": {"work": {"environment": {"MAX_BATCH_SIZE": "8"}}}}
    chart = yaml.safe_load(setting_file(one, SettingForm.HELM_VALUES))
    assert chart == {"env": [{"name": "MAX_BATCH_SIZE", "value": "8"}]}
    text = setting_file(one, SettingForm.COMPOSE)
    assert "MAX_BATCH_SIZE=64" in text and "unless the service reads it" in text
    word = reviewed(replace(WORK[0], name="no"))
    chart = yaml.safe_load(setting_file(word, SettingForm.HELM_VALUES))
    assert chart == {"env": [{"name": "NO", "value": "8"}]}, "not the word of YAML for false"


@pytest.mark.parametrize(
    "value", ["a$b", "${HOME}", "$$", "%h", "é😀", '"\\', "a\nb", "yes", "0123", "1e3", " a "]
)
def test_a_patch_means_the_value_itself(value: str) -> None:
    one = reviewed(replace(WORK[0], values=(value, "x"), default="x"))
    compose = yaml.safe_load(setting_file(one, SettingForm.COMPOSE))
    (shown,) = compose["services"]["work"]["environment"].values()
    assert re.sub(r"\$(\$|\w+|\{.*?\})", lambda m: "$" if m[1] == "$" else "", shown) == value
    chart = yaml.safe_load(setting_file(one, SettingForm.HELM_VALUES))
    assert chart["env"][0]["value"] == value


@pytest.mark.parametrize("form", [SettingForm.COMPOSE, SettingForm.HELM_VALUES])
@pytest.mark.parametrize("name", ["2fast", "größe", "名"])
def test_a_variable_that_no_environment_takes_is_refused_by_name(
    name: str, form: SettingForm
) -> None:
    with pytest.raises(InvalidInput, match=repr(name.upper())):
        setting_file(reviewed(replace(WORK[0], name=name)), form)


def test_a_service_that_compose_refuses_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="'my work'"):
        setting_file(replace(reviewed(WORK[0]), workload="my work"), SettingForm.COMPOSE)


def test_json_has_everything() -> None:
    written = json.loads(setting_file(reviewed(*GPU, *WORK, *OTHER), SettingForm.JSON))
    assert written["setting"]["max-batch.size"] == 8
    assert written["baseline"]["gpu.clock_mhz"] == 1410
    assert written["remarks"] == list(REMARKS)


def test_commands_are_for_one_host_and_a_known_gpu() -> None:
    with pytest.raises(InvalidInput, match="2 hosts"):
        setting_file(reviewed(*GPU, devices=("nvidia-0@a", "nvidia-0@b")), SettingForm.SHELL)
    with pytest.raises(InvalidInput, match="has no GPU"):
        setting_file(reviewed(*GPU, devices=("simulated-a100@a",)), SettingForm.SHELL)
    uuid = "GPU-00000000-0000-4000-8000-000000000000"
    text = setting_file(reviewed(GPU[0], devices=(f"nvidia-{uuid}-cpu@a",)), SettingForm.SHELL)
    assert f"--id={uuid} " in text


@pytest.mark.parametrize("form", COMMANDS)
def test_a_value_of_an_agent_is_one_word_of_the_shell(form: SettingForm) -> None:
    for knob in (*GPU, CPU[0]):
        if knob.name in setting_files.COMMANDS[form]:
            odd = replace(knob, values=("1; touch x #", knob.default))
            assert "'1; touch x #" in setting_file(reviewed(odd), form)


@pytest.mark.parametrize("device", ["jetson@nvidia-01", "simulated-a100@nvidia-1"])
def test_the_name_of_a_host_names_no_gpu(device: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(device)):
        setting_file(reviewed(GPU[0], devices=[device]), SettingForm.NVIDIA_SMI)
