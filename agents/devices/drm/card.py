"""The knobs of an AMD or Intel GPU that are files: the power limit, and a ceiling of the core clock.

Sources: Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon and -i915-hwmon (a limit of 0 is off);
drivers/gpu/drm/xe/xe_gt_freq.c and i915/gt/intel_gt_sysfs_pm.c (clocks round to 50/3 MHz);
drivers/gpu/drm/amd/pm/amdgpu_pm.c (a limit is cut to whole watts; EPERM in a reset or a suspend).

An entry is named by its path below the PCI device, with `*` in place of hwmon's and DRM's numbers, which
change when a driver is loaded. Ours: limits go down to a quarter of the greatest one unless the driver
has a minimum.
"""

import errno
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.actuator import kernel_text
from agents.actuator.driver import Value
from tuner.errors import ActuationError, DeviceLost, KnobRefused

LIMIT, CLOCK = "gpu.power_limit_w", "gpu.clock_mhz"
FILES: Mapping[str, tuple[str, str]] = {
    "amdgpu": ("hwmon/hwmon*/power1_cap", "pp_dpm_sclk"),
    "xe": ("hwmon/hwmon*/power[12]_max", "tile*/gt*/freq0/max_freq"),
    "i915": ("hwmon/hwmon*/power1_max", "drm/card*/gt/gt0/rps_[mb]*[xt]_freq_mhz"),  # max and boost
}
"""Kernel driver to the patterns of its power limit and of its clock ceilings."""
VENDORS = {"amdgpu": "AMD GPU", "xe": "Intel GPU", "i915": "Intel GPU"}
ENDS = {"max_freq": "rpn_freq rp0_freq min_freq"}
ENDS["rps_max_freq_mhz"] = "rps_RPn_freq_mhz rps_RP0_freq_mhz rps_min_freq_mhz"
ENDS["rps_boost_freq_mhz"] = ENDS["rps_max_freq_mhz"]  # in force above it while a program waits
"""Ceiling to the files of the least clock, the greatest clock and the lower limit in force."""
NUMBERED = re.compile(r"\b(hwmon/hwmon|drm/card)\d+")
UW, STEP_MHZ, DIGITS = 1_000_000, 50, 20
AWAY = {errno.EPERM, errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.EBUSY}
WAIT = "it is in a reset, asleep or removed: see `dmesg`"
REFUSED = "a virtual function takes none; the allowed range may have changed: `jouletune doctor`"


@dataclass(eq=False)
class Card:
    """One GPU at the PCI device `folder`, with the kernel driver `kind`; a KnobDriver."""

    folder: Path
    kind: str
    uuid: str
    knobs = (LIMIT, CLOCK)
    files = True

    @property
    def board(self) -> str:
        """Return the vendor and the product's PCI identifier."""
        return " ".join([VENDORS[self.kind], *kernel_text.words(self.folder / "device")])

    @property
    def epoch(self) -> str:
        """Return the inode of the DRM node, new in each load, and the time slept at run time in ms.

        Raises ActuationError, DeviceLost: what cannot be read is no other load.
        """
        nodes = [node.stat().st_ino for node in self.folder.glob("drm/card*")]
        return f"{nodes} {self._number('power/runtime_suspended_time')}"

    @property
    def resets(self) -> Mapping[str, str]:
        """Return the texts that a GPU reset leaves without another trace, by entry."""
        return {n: t for k in self.ranges() for n, t in self.plan(k, None).items() if t}

    @property
    def defaults(self) -> Mapping[str, Value]:
        """Return the default power limit in W."""
        names = self._names(LIMIT) if LIMIT in self.ranges() else ()
        return {LIMIT: self._default(n) // UW for n in names}  # noqa: B035 - one

    @property
    def without(self) -> Mapping[str, str]:
        """Return the knobs left out, each with the reason."""
        return {knob: values for knob, values in self._offered().items() if isinstance(values, str)}

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the values that can be written now: the allowed range is read each time."""
        return {
            knob: values for knob, values in self._offered().items() if not isinstance(values, str)
        }

    def _offered(self) -> dict[str, tuple[Value, ...] | str]:
        """Return each knob's values, or the reason that it has none. Raises DeviceLost."""
        offered = dict[str, tuple[Value, ...] | str]()
        for knob, values in ((LIMIT, self._limits), (CLOCK, self._clocks)):
            try:
                offered[knob] = tuple(values()) or "its driver shows none"
            except DeviceLost:
                raise
            except ActuationError as error:
                offered[knob] = str(error)
        return offered

    def _limits(self) -> list[int]:
        """Return the power limits in W, ascending. Raises ActuationError."""
        for name in self._names(LIMIT):
            self._default(name)  # a limit that cannot be restored is not offered
            high = self._default(name, f"{name}_max") // UW
            low = -(-self._number(f"{name}_min") // UW) or high // 4
            return kernel_text.span([low, high], 1) if 0 < low < high else []
        return []

    def _clocks(self) -> list[int]:
        """Return the clock ceilings in MHz, ascending. Raises ActuationError."""
        for name in self._names(CLOCK)[:1]:
            low, high, floor = self._ends(name)
            ladder = kernel_text.span([0, high], STEP_MHZ) if high < UW else []
            return [mhz for mhz in ladder if mhz and mhz >= max(low, floor)]
        return []

    def read(self) -> Mapping[str, Value | None]:
        """Return the knobs' values; None for a limit that is off, and for a mask, which is not shown."""
        shown: dict[str, Value | None] = {k: None for k in self.knobs if self._names(k)}
        for knob, text, _ in self.entries()[0].values():
            if str(text).isdecimal():
                shown[knob] = kernel_text.scaled(int(text), UW if knob == LIMIT else 1) or None
        return shown

    def entries(self, names: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
        """Return each file's knob and text, and the reason of each failed read. Raises DeviceLost."""
        ours = self._files()
        answers, silent = dict[str, Any](), dict[str, str]()
        for name in dict.fromkeys([*ours, *names]):
            try:
                answers[name] = ours.get(name), self._shown(name), None
            except DeviceLost:
                raise
            except ActuationError as error:
                silent[name] = str(error)
        return answers, silent

    def plan(self, knob: str, value: Value | None) -> dict[str, Any]:
        """Return the text for each file of a knob; None is the driver's default."""
        unit = UW if knob == LIMIT else 1
        top = self._default if knob == LIMIT else lambda name: self._ends(name)[1]
        return {n: f"{float(value) * unit if value else top(n):.0f}" for n in self._names(knob)}

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob, or one file; None sets the driver's default. Raises ActuationError, DeviceLost."""
        texts = self.plan(knob, value) if knob in self.knobs else {knob: value}
        for name, text in texts.items():
            self._set(name, None if text is None else str(text))

    def _set(self, name: str, text: str | None) -> None:
        """Set one file; None sets its default. Raises ActuationError, DeviceLost."""
        self._put(name, self.resets.get(name, "") if text is None else text)

    def _files(self) -> dict[str, str]:
        """Return each entry's knob, in the order to write them."""
        return {n: k for k in self.knobs for n in self._names(k)}

    def _names(self, knob: str) -> list[str]:
        """Return the entries of a knob: one limit, or the ceilings of the first clock of each tile."""
        listed = sorted(self.folder.glob(FILES[self.kind][knob == CLOCK]), reverse=True)
        names = [str(file.relative_to(self.folder)) for file in listed]
        first = {(Path(n).parts[0], Path(n).name) if knob == CLOCK else "": n for n in names}
        return sorted(NUMBERED.sub(r"\1*", name) for name in first.values())

    def _ends(self, name: str) -> list[int]:
        """Return the least clock, the greatest one and the lower limit in force; zeros if unknown."""
        folder, _, file = name.rpartition("/")
        return [self._number(f"{folder}/{end}") for end in ENDS[file].split()]

    def _default(self, name: str, *files: str) -> int:
        """Return the default limit in µW, or that of `files`. Old kernels of AMD show the greatest.

        Raises ActuationError without one: the present limit may be ours.
        """
        names = (*(files or [f"{name}_default"]), f"{name}_max", name.replace("_max", "_rated_max"))
        if uw := self._number(*(n for n in names if n != name)):
            return uw
        raise ActuationError(f"{self.uuid}: {name} has no default in {', '.join(names)}")

    def _number(self, *names: str) -> int:
        """Return the first number above 0 in files, 0 without one. Raises ActuationError, DeviceLost."""
        texts = (self._text(name) for name in names if any(self.folder.glob(name)))
        return next((int(t) for t in texts if t.isdecimal() and len(t) < DIGITS and int(t)), 0)

    def _shown(self, name: str) -> str | None:
        """Return an entry's text; None if the file does not show it. Raises ActuationError, DeviceLost."""
        return self._text(name)

    def _text(self, name: str) -> str:
        """Return a file's text. Raises ActuationError, DeviceLost."""
        return str(self._done(name, "cannot be read", lambda file: file.read_text().strip()))

    def _put(self, name: str, text: str) -> None:
        """Write a file. Raises ActuationError, DeviceLost; KnobRefused if the device takes no value."""
        try:
            self._done(name, f"rejects {text}", lambda file: file.write_text(text))
        except KnobRefused as error:
            if error.knob != LIMIT or text in (f"{w * UW}" for w in self.ranges().get(LIMIT, ())):
                raise  # else the range has changed
            raise ActuationError(error.message, hint=error.hint) from error

    def _done(self, name: str, what: str, job: Callable[[Path], object]) -> object:
        """Return the result of a read or a write; a file that is away means a lost device."""
        try:
            return job(next(iter(sorted(self.folder.glob(name))), self.folder / name))
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", 0)
            why = f"{self.uuid}: {name} {what}: {getattr(error, 'strerror', None) or error}"
            if number in AWAY:
                raise DeviceLost(why, hint=WAIT) from error
            if number in kernel_text.NEVER | {errno.EINVAL} and name in self._files():
                raise KnobRefused(why, hint=REFUSED, knob=self._files()[name]) from error
            raise ActuationError(why, hint=kernel_text.REFUSED) from error
