"""Knobs that are files of the kernel under /sys, as root writes them.

Sources: the kernel's Documentation/admin-guide/pm/cpufreq.rst. Ours: a clock knob is a ceiling over all
clock domains of one ladder, so that what idles still slows down by itself; where a driver has a range in
place of a table, the ladder goes in steps of 100 MHz.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agents.actuator.driver import Value
from tuner.errors import ActuationError

CPU_CLOCK = "cpu.max_mhz"
POLICIES = "sys/devices/system/cpu/cpufreq/policy*"
KHZ, STEP_KHZ = 1000, 100_000
CEILINGS = ("scaling_max_freq", "max_freq")
"""Files of cpufreq and devfreq that show the limit in force, not the one that was asked for."""
REFUSED = "is a floor above that, or has the actuator no drop-in for this device?"


@dataclass(frozen=True, slots=True)
class FileKnob:
    """One knob: files that are written alike, and the values offered, ascending.

    `unit` is how many of the files' units make one of the knob's; 0: it is a text. Files that stand at
    different values are told, and can be written, as one text of all. Every method raises ActuationError.
    """

    files: Sequence[Path]
    values: tuple[Value, ...]
    unit: int = 0

    def read(self) -> Value | None:
        """Return what the files say."""
        shown = [scaled(int(t), self.unit) if self.unit else t for t in map(content, self.files)]
        return shown[0] if len({*shown}) == 1 else " ".join(map(str, shown))

    def write(self, value: Value | None) -> None:
        """Write all files, each for itself: one that refuses stops no other.

        None is what throttles nobody: the word `performance`, or the greatest value.
        """
        if value is None:
            value = "performance" if "performance" in self.values else self.values[-1]
        texts, failures = str(value).split(), list[str]()
        for file, text in zip(self.files, texts * (len(self.files) // len(texts)), strict=True):
            try:
                file.write_text(str(round(float(text) * self.unit)) if self.unit else text)
            except OSError as error:
                failures.append(f"{file} does not take {text}: {error.strerror}")
        if failures:
            raise ActuationError("; ".join(failures), hint=REFUSED)


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
        """Set a knob to a supported value, to one that `read` told before, or where it throttles nobody."""
        self.offered[knob].write(value)


def devices(
    uuid: str,
    board: str,
    kinds: Sequence[str],
    found: Mapping[str, FileKnob | str],
    probed: Collection[str] = (),
) -> list[FileKnobs]:
    """Return the device that has these knobs; none where none of them can be used.

    A text says why there is no knob; one that cannot be read is left out.
    """
    offered, without = dict[str, FileKnob](), dict[str, str]()
    for name, knob in found.items():
        try:
            if isinstance(knob, str):
                raise ActuationError(knob)
            if knob.files:
                knob.read()
                offered[name] = knob
        except (ActuationError, ValueError) as error:
            without[name] = str(error)
    kinds = (*dict.fromkeys((*kinds, *offered, *without)),)
    made = FileKnobs(uuid, board, kinds, offered, probed=probed, without=without)
    return [made] if offered or without else []


def content(file: Path) -> str:
    """Return what a file says, without the NUL of a device tree. Raises ActuationError."""
    try:
        return file.read_text().strip("\0\n ")
    except (OSError, ValueError) as error:
        raise ActuationError(f"cannot read {file}: {error}") from error


def words(*files: Path) -> set[str]:
    """Return the words in files; none where one of them does not answer."""
    with suppress(ActuationError):
        return {word for file in files for word in content(file).split()}
    return set()


def numbers(*files: Path) -> list[int]:
    """Return the whole numbers in files, ascending; none where one of them does not answer."""
    return sorted({int(word) for word in words(*files) if word.isdecimal()})


def scaled(number: int, unit: int) -> int | float:
    """Return a number in a greater unit, whole where it is."""
    return number / unit if number % unit else number // unit


def ceiling(files: Sequence[Path], ladder: Sequence[int], floor: str, unit: int) -> FileKnob:
    """Return the knob over files that limit a clock; `floor` is the file beside that limits it from below.

    What is under a floor that is set is not offered: the kernel would refuse it.
    """
    least = max(numbers(*(file.with_name(floor) for file in files)), default=0)
    return FileKnob(files, tuple(scaled(n, unit) for n in ladder if n >= least), unit)


def span(ends: Sequence[int], step: int = STEP_KHZ) -> list[int]:
    """Return the ladder from the first to the last of these numbers, nothing where there are none."""
    return [*range(ends[0], ends[-1], step), ends[-1]] if ends else []


def cpu_clocks(root: Path) -> dict[str, FileKnob]:
    """Return the knob over the clocks of all CPUs, or one for each ladder, named after its first policy.

    A policy that does not answer has no CPU at work, and is left alone.
    """
    ladders: dict[tuple[int, ...], list[Path]] = {}
    for policy in sorted(root.glob(POLICIES), key=lambda path: int(path.name[len("policy") :])):
        ends = numbers(policy / "cpuinfo_min_freq", policy / "cpuinfo_max_freq")
        ladder = tuple(numbers(policy / "scaling_available_frequencies") or span(ends))
        if ladder and numbers(policy / "scaling_max_freq"):
            ladders.setdefault(ladder, []).append(policy / "scaling_max_freq")
    found: dict[str, FileKnob] = {}
    for ladder, files in ladders.items():
        name = CPU_CLOCK + f".{files[0].parent.name[len('policy') :]}" * (len(ladders) > 1)
        found[name] = ceiling(files, ladder, "scaling_min_freq", KHZ)
    return found
