"""A study's setting as a file for review: commands or a patch, with the reason and the way back."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.bounds import visible
from tuner.compat import StrEnum
from tuner.core import InvalidInput, Knob, Part, Setting, Value

GPU = re.compile(r"nvidia-(\d+|GPU-[0-9a-fA-F-]{36})")
"""A GPU's index or UUID in a device's id."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SERVICE = re.compile(r"[A-Za-z0-9._-]+")
CPU_FILES = "/sys/devices/system/cpu"


class SettingForm(StrEnum):
    """The form of a setting's file."""

    SHELL = "shell"
    SYSTEMD = "systemd"
    NVIDIA_SMI = "nvidia-smi"
    COMPOSE = "compose"
    HELM_VALUES = "helm-values"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ReviewedSetting:
    """A setting, the baseline, the devices' ids, the knobs, the workload, and remarks of one line each."""

    setting: Setting
    baseline: Setting
    devices: Sequence[str]
    knobs: Sequence[Knob]
    workload: str
    remarks: Sequence[str]

    @property
    def changed(self) -> list[Knob]:
        """The knobs that differ from the baseline, in the order of the knobs."""
        return [k for k in self.knobs if self.setting[k.name] != self.baseline[k.name]]

    @property
    def comments(self) -> list[str]:
        """The remarks as comments; a line break within one does not end it."""
        return [f"# {visible(' '.join(remark.split()))}" for remark in self.remarks]


Commands = Callable[[str, Value, bool], str]
"""Return the command for a device's id and a value; the flag is whether the baseline is restored."""


def _smi(option: str, reset: str = "") -> Commands:
    """Return the command of nvidia-smi for an option; `reset` is the option that restores the default."""

    def command(device: str, value: Value, back: bool) -> str:
        named = GPU.match(device.partition("@")[0])
        if named is None:
            raise InvalidInput(
                f"{device} has no GPU of nvidia-smi", hint="use --as json, and write it by hand"
            )
        what = reset if back and reset else option.format(shlex.quote(str(value)))
        return f"nvidia-smi --id={named[1]} {what}"

    return command


def _written(files: str, scale: int = 1) -> Commands:
    """Return the command that writes a value into each file that matches a pattern of the shell."""

    def command(device: str, value: Value, back: bool) -> str:
        text = round(float(value) * scale) if scale != 1 else value
        return f"for f in {CPU_FILES}/{files}; do echo {shlex.quote(str(text))} > $f; done"

    return command


NVIDIA: Mapping[str, Commands] = {
    "gpu.power_limit_w": _smi("--power-limit={}"),
    "gpu.mem_clock_mhz": _smi("--lock-memory-clocks={0},{0}", "--reset-memory-clocks"),
    "gpu.clock_mhz": _smi("--lock-gpu-clocks=0,{}", "--reset-gpu-clocks"),
}
CPU: Mapping[str, Commands] = {
    "cpu.governor": _written("cpufreq/policy*/scaling_governor"),
    "cpu.epp": _written("cpufreq/policy*/energy_performance_preference"),
    "cpu.max_mhz": _written("cpufreq/policy*/scaling_max_freq", 1000),
}
"""Each knob that a command sets, in the order of writing, also back: a governor admits its preferences."""
COMMANDS = {
    SettingForm.NVIDIA_SMI: NVIDIA,
    SettingForm.SHELL: {**CPU, **NVIDIA},
    SettingForm.SYSTEMD: {**CPU, **NVIDIA},
}


def setting_file(of: ReviewedSetting, form: SettingForm) -> str:
    """Return the text of a file that puts the setting in force, and how to put it back, for review.

    Raises:
        InvalidInput: the form cannot express a knob that differs from the baseline; the knob is named.
    """
    if form is SettingForm.JSON:
        fields = {"setting": of.setting, "baseline": of.baseline, "devices": list(of.devices)}
        more = {"workload": of.workload, "remarks": list(of.remarks)}
        return json.dumps({**fields, **more}, ensure_ascii=False, indent=2) + "\n"
    table = COMMANDS.get(form)
    for knob in of.changed:
        fits = knob.part is Part.WORKLOAD if table is None else knob.name in table
        if not fits:
            raise InvalidInput(
                f"--as {form} cannot express {knob.name} = {of.setting[knob.name]}",
                hint="use --as json, or --part device or workload for the other knobs",
            )
    return "\n".join(_lines(of, form, table)) + "\n"


def _lines(
    of: ReviewedSetting, form: SettingForm, table: Mapping[str, Commands] | None
) -> Iterator[str]:
    """Yield the lines of a file of commands, of a unit or of a patch."""
    if table is None:
        yield from of.comments
        was = ", ".join(f"{_variable(k)}={_text(of.baseline[k.name])}" for k in of.changed)
        yield "# each variable is named after a knob; it has no effect unless the service reads it"
        yield f"# put back: remove these lines, or set {was}"
        yield from _variables(of, compose=form is SettingForm.COMPOSE)
        return
    hosts = {device.rpartition("@")[2] for device in of.devices}
    if len(hosts) > 1:
        raise InvalidInput(
            f"the devices of the study are on {len(hosts)} hosts", hint="give one by --device ID"
        )
    changed = {knob.name for knob in of.changed}
    names = [name for name in table if name in changed]
    there = _each(table[n](d, of.setting[n], False) for d in of.devices for n in names)
    # amd-pstate leaves `performance` of that governor in force; under it no preference can be written.
    if "cpu.governor" in changed and of.baseline["cpu.governor"] != "performance":
        changed |= {"cpu.epp"} & of.baseline.keys()
    returned = [name for name in table if name in changed]
    back = _each(table[n](d, of.baseline[n], True) for d in of.devices for n in returned)
    if form is SettingForm.SYSTEMD:
        yield from of.comments
        yield "# put back: systemctl disable --now this unit"
        yield "[Unit]"
        what = (of.workload or "this host").replace("%", "%%")
        yield f"Description=Setting of {what}, exported by jouletune"
        yield "[Service]"
        yield "Type=oneshot"
        yield "RemainAfterExit=yes"
        yield from (f"ExecStart={_unit(command)}" for command in there)
        # Unlike `ExecStop=` also after a failed start; each, whether or not another one fails.
        yield from (f"ExecStopPost=-{_unit(command)}" for command in back)
        yield "[Install]"
        yield "WantedBy=multi-user.target"
        return
    yield "#!/bin/sh -eu"
    yield from of.comments
    yield from there
    yield "# put back:"
    yield from (f"# {command}" for command in back)


def _each(commands: Iterable[str]) -> list[str]:
    """Return each command once: those of a CPU do not name the device."""
    return list(dict.fromkeys(commands))


def _unit(command: str) -> str:
    """Return a command of the shell as a word of a unit: `%` and `$` are systemd's own."""
    quoted = json.dumps(command, ensure_ascii=False).replace("%", "%%").replace("$", "$$")
    return f"/bin/sh -euc {quoted}"


def _variable(knob: Knob) -> str:
    """Return the environment variable that stands for a knob. Raises InvalidInput: it cannot be one."""
    return _legal(re.sub(r"\W", "_", knob.name).upper(), VARIABLE, "environment variable")


def _legal(name: str, form: re.Pattern[str], what: str) -> str:
    """Return a name. Raises InvalidInput: the program that reads the file would refuse it."""
    if not form.fullmatch(name):
        hint = "use --as json, or rename it: letters from A to Z, digits and _"
        raise InvalidInput(f"no {what} can be named {name!r}", hint=hint)
    return name


def _text(value: Value) -> str:
    """Return a value as workloads are given it in their environment: a switch is `true` or `false`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _variables(of: ReviewedSetting, *, compose: bool) -> Iterator[str]:
    """Yield the knobs of the workload as environment variables of Compose, or as values of a chart."""
    values: dict[str, str] = {}
    knobs: dict[str, str] = {}
    for knob in of.changed:
        if (other := knobs.setdefault(_variable(knob), knob.name)) != knob.name:
            raise InvalidInput(
                f"{other} and {knob.name} are both the variable {_variable(knob)}",
                hint="use --as json, and write them by hand",
            )
        value = json.dumps(_text(of.setting[knob.name]), ensure_ascii=False)
        # Compose replaces `$NAME` by a variable of its own environment; `$$` is a dollar.
        values[_variable(knob)] = value.replace("$", "$$") if compose else value
    if compose:
        yield "services:"
        yield f"  {json.dumps(_legal(of.workload, SERVICE, 'service of Compose'))}:"
        yield "    environment:"
        yield from (f"      {json.dumps(name)}: {value}" for name, value in values.items())
    else:
        yield "env:"
        for name, value in values.items():
            yield f"  - name: {json.dumps(name)}"
            yield f"    value: {value}"
