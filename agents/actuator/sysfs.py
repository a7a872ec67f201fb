"""Knobs that are files of the kernel under /sys, as root writes them.

Sources: the kernel's Documentation/admin-guide/pm/cpufreq.rst; drivers/cpufreq/cpufreq.c
(cpufreq_set_policy: since Linux 5.16 a ceiling becomes the next lower clock of a policy's own table);
arch/x86/events/intel/core.c for the lists of a hybrid's cores. Ours: a clock knob is a ceiling over all
clock domains of like cores, which clip it to what each can do, so that what idles still slows down by
itself; its ladder is all their tables, or steps of 100 MHz where a driver has a range in place of a table;
cores are like while the next weaker one has at least 85 % of a core's `cpu_capacity`, else of its greatest
clock, where no list tells a hybrid's small cores.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.actuator.driver import Value
from tuner.errors import ActuationError

CPU_CLOCK = "cpu.max_mhz"
CPUS, TOP = "sys/devices/system/cpu", "cpuinfo_max_freq"
POLICIES = f"{CPUS}/cpufreq/policy[0-9]*"
SMALL_CORES = "sys/devices/cpu_[al]*/cpus"
"""Lists such as `16-23,30` of an Intel hybrid's small cores, by their PMUs: cpu_atom and cpu_lowpower."""
TABLE = "scaling_available_frequencies"
KHZ, STEP_KHZ = 1000, 100_000
LIKE, MOST_DIGITS, MOST_RUNGS = 0.85, 18, 1000
"""A number in a file with more digits, or a ladder with more steps, is none."""
CEILINGS = ("scaling_max_freq", "max_freq")
"""Files of cpufreq and devfreq that show the limit in force, not the one that was requested."""
REFUSED = "check that no minimum is above it, and that the actuator's unit has the drop-in for this device"


@dataclass(slots=True)
class FileKnob:
    """One knob: files that are written alike, and the values offered, ascending.

    `unit` is how many of the files' units make one of the knob's; 0: it is a text. A file takes of a value
    what the kernel makes of it, see `clipped`, and the knob counts as at the `requested` value. Files with
    different values are read and written as one text of all. Every method raises ActuationError.
    """

    files: Sequence[Path]
    values: tuple[Value, ...]
    unit: int = 0
    requested: Sequence[Any] = ()

    def read(self) -> Value | None:
        """Return what the files say."""
        shown = self.clipped([content(file, int if self.unit else str) for file in self.files])
        guesses = (self.requested, [max(shown)] * len(shown))
        in_force = next((g for g in guesses if g and self.clipped(g) == shown), shown)
        values = [scaled(number, self.unit) if self.unit else number for number in in_force]
        return values[0] if len({*values}) == 1 else " ".join(map(str, values))

    def write(self, value: Value | None) -> None:
        """Write all files, each for itself: one that refuses stops no other.

        None: no throttling: the word `performance`, or the greatest value.
        """
        if value is None:
            value = "performance" if "performance" in self.values else self.values[-1]
        texts, failures = str(value).split(), list[str]()
        texts = (texts * len(self.files))[: len(self.files)]
        self.requested = [round(float(text) * self.unit) if self.unit else text for text in texts]
        texts = [str(most) for most in self.clipped(self.requested)]
        for file, text in zip(self.files, texts, strict=True):
            try:
                file.write_text(text)
            except OSError as error:
                failures.append(f"{file} rejects {text}: {error.strerror}")
        if failures:
            raise ActuationError("; ".join(failures), hint=REFUSED)

    def clipped(self, values: Sequence[Any]) -> list[Any]:
        """Return the most that each file may say of a value: its `TOP`, and of values offered its `TABLE`.

        What does not answer clips none; what another program set need not be in a table.
        """
        if not self.unit:
            return [*values]
        offered, clipped = {round(float(v) * self.unit) for v in self.values}, list[int]()
        for file, value in zip(self.files, values, strict=True):
            most = min([value, *numbers(file.with_name(TOP))])
            table = numbers(file.with_name(TABLE)) if value in offered else []
            clipped.append(max((rung for rung in table if rung <= most), default=most))
        return clipped


@dataclass(eq=False)
class FileKnobs:
    """A device whose knobs are files; a KnobDriver. The kernel forgets nothing until its next start.

    `knobs` are those that such devices may have, `offered` those that this one has, `without` why it has
    not the others, `probed` those that firmware may have locked.
    """

    uuid: str
    board: str
    knobs: Sequence[str]
    offered: Mapping[str, FileKnob]
    epoch: str = "files"
    probed: Collection[str] = ()
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def ceilings(self) -> list[str]:
        """The knobs whose files a cap of the kernel lowers."""
        return [name for name, knob in self.offered.items() if knob.files[0].name in CEILINGS]

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""
        return {name: knob.values for name, knob in self.offered.items()}

    def read(self) -> Mapping[str, Value | None]:
        """Return each knob's value in force; None where the hardware does not tell it."""
        return {name: knob.read() for name, knob in self.offered.items()}

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob to a supported value, to one that `read` returned before, or to no throttling."""
        self.offered[knob].write(value)


KnobFiles = Mapping[str, FileKnob | str]


def devices(
    uuid: str, board: str, kinds: Sequence[str], knobs: KnobFiles, probed: Collection[str] = ()
) -> list[FileKnobs]:
    """Return the device that has these knobs; none where none of them can be used.

    A text says why there is no knob; one that cannot be read is left out.
    """
    offered, without = dict[str, FileKnob](), dict[str, str]()
    for name, knob in knobs.items():
        try:
            if isinstance(knob, str):
                raise ActuationError(knob)
            if knob.files:
                knob.read()
                offered[name] = knob
        except (ActuationError, ValueError) as error:
            without[name] = str(error)
    kinds = (*dict.fromkeys((*kinds, *offered, *without)),)
    device = FileKnobs(uuid, board, kinds, offered, probed=probed, without=without)
    return [device] if offered or without else []


def content(file: Path, kind: type = str) -> Any:  # noqa: ANN401 - of that kind
    """Return what a file says, without the NUL of a device tree. Raises ActuationError."""
    try:
        return kind(file.read_text().strip("\0\n "))
    except (OSError, ValueError) as error:
        raise ActuationError(f"cannot read {file}: {error}") from error


def words(*files: Path) -> set[str]:
    """Return the words in files; none where one of them does not answer."""
    with suppress(ActuationError):
        return {word for file in files for word in content(file).split()}
    return set()


def numbers(*files: Path) -> list[int]:
    """Return the whole numbers in files, ascending; none where one of them does not answer."""
    numerals = (word for word in words(*files) if word.isdecimal() and len(word) <= MOST_DIGITS)
    return sorted({int(word) for word in numerals})


def scaled(number: int, unit: int) -> int | float:
    """Return a number in a greater unit, whole where it is, or greater than any that is measured."""
    return number / unit if number % unit and number < 10**MOST_DIGITS else number // unit


def ceiling(files: Sequence[Path], ladder: Sequence[int], floor: str, unit: int) -> FileKnob:
    """Return the knob over files that limit a clock; `floor` is the file beside that limits it from below.

    What is under a floor that is set is not offered: the kernel would refuse it.
    """
    least = max(numbers(*(file.with_name(floor) for file in files)), default=0)
    return FileKnob(files, tuple(scaled(n, unit) for n in ladder if n >= least), unit)


def span(ends: Sequence[int], step: int = STEP_KHZ) -> list[int]:
    """Return the ladder from the first to the last of these numbers, nothing where that is no ladder."""
    short = ends and ends[-1] - ends[0] <= MOST_RUNGS * step
    return [*range(ends[0], ends[-1], step), ends[-1]] if short else []


def cpu_clocks(root: Path) -> dict[str, FileKnob]:
    """Return the knob over the clocks of all CPUs, or one for each kind, named after its first policy.

    A policy that does not answer has no CPU at work, and is left alone.
    """
    small = ",".join(words(*root.glob(SMALL_CORES)))
    spans = [(int(a), int(b or a)) for a, b in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", small)]
    domains = []
    for file in root.glob(f"{POLICIES}/scaling_max_freq"):
        cpu = int(file.parent.name.removeprefix("policy"))
        ends = numbers(file.with_name("cpuinfo_min_freq"), file.with_name(TOP))
        table = numbers(file.with_name(TABLE))
        if numbers(file) and (table or span(ends)):
            strong = numbers(root / CPUS / f"cpu{cpu}/cpu_capacity") or ends or table
            domains.append((strong[-1], cpu, table, ends, file))
    kinds: dict[int, list[tuple[int, list[int], list[int], Path]]] = {}
    step = last = 0
    for strength, cpu, table, ends, file in sorted(domains, reverse=True):
        step, last = step + (strength < LIKE * last), strength
        kind = any(a <= cpu <= b for a, b in spans) if spans else step
        kinds.setdefault(kind, []).append((cpu, table, ends, file))
    knobs: dict[str, FileKnob] = {}
    for like in sorted(map(sorted, kinds.values())):
        name = CPU_CLOCK + f".{like[0][0]}" * (len(kinds) > 1)
        tables = {rung for _, table, _, _ in like for rung in table}
        ladder = sorted(tables) or span(sorted(end for _, _, ends, _ in like for end in ends))
        knobs[name] = ceiling([file for *_, file in like], ladder, "scaling_min_freq", KHZ)
    return knobs
