"""Knobs that are files of the kernel under /sys, as root writes them.

Sources: the kernel's Documentation/admin-guide/pm/cpufreq.rst; arch/x86/events/intel/core.c for the lists
of a hybrid's cores. Ours: a clock knob is a ceiling over all clock domains of like cores, which clip it to
what each can do, so that what idles still slows down by itself; where a driver has a range in place of a
table, the ladder goes in steps of 100 MHz; cores are like while the next weaker one has at least 85 % of a
core's `cpu_capacity`, else of its greatest clock, where no list tells a hybrid's small cores.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agents.actuator.driver import Value
from tuner.errors import ActuationError

CPU_CLOCK = "cpu.max_mhz"
POLICIES = "sys/devices/system/cpu/cpufreq/policy*"
SMALL_CORES = ("cpu_atom", "cpu_lowpower")
"""An Intel hybrid's PMUs of its small cores: each has a file `cpus`, a list such as `16-23,30`."""
KHZ, STEP_KHZ = 1000, 100_000
LIKE = 0.85
MOST_DIGITS, MOST_RUNGS = 18, 1000
"""A number in a file with more digits, or a ladder with more steps, is none."""
CEILINGS = ("scaling_max_freq", "max_freq")
"""Files of cpufreq and devfreq that show the limit in force, not the one that was asked for."""
REFUSED = "is a floor above that, or has the actuator no drop-in for this device?"


@dataclass(slots=True)
class FileKnob:
    """One knob: files that are written alike, and the values offered, ascending.

    `unit` is how many of the files' units make one of the knob's; 0: it is a text. `tops` are files with
    the most that each of the files may say now: more is clipped to it, as the kernel does, and the knob
    stands at what was `asked`. Files that stand at different values are told, and can be written, as one
    text of all. Every method raises ActuationError.
    """

    files: Sequence[Path]
    values: tuple[Value, ...]
    unit: int = 0
    tops: Sequence[Path] = ()
    asked: Sequence[int] = ()

    def read(self) -> Value | None:
        """Return what the files say."""
        if not self.unit:
            return told([content(file) for file in self.files])
        shown = self.clipped([whole(file) for file in self.files])
        for wanted in (self.asked, [max(shown)] * len(shown)):
            if wanted and self.clipped(wanted) == shown:
                return told([scaled(number, self.unit) for number in wanted])
        return told([scaled(number, self.unit) for number in shown])

    def write(self, value: Value | None) -> None:
        """Write all files, each for itself: one that refuses stops no other.

        None is what throttles nobody: the word `performance`, or the greatest value.
        """
        if value is None:
            value = "performance" if "performance" in self.values else self.values[-1]
        texts, failures = str(value).split(), list[str]()
        texts *= len(self.files) // len(texts)
        if self.unit:
            self.asked = [round(float(text) * self.unit) for text in texts]
            texts = [str(number) for number in self.clipped(self.asked)]
        for file, text in zip(self.files, texts, strict=True):
            try:
                file.write_text(text)
            except OSError as error:
                failures.append(f"{file} does not take {text}: {error.strerror}")
        if failures:
            raise ActuationError("; ".join(failures), hint=REFUSED)

    def clipped(self, values: Sequence[int]) -> list[int]:
        """Return the most that each file may say of a value; a top that is silent clips none."""
        tops = [numbers(top) for top in self.tops] or [[]] * len(values)
        return [min([value, *top]) for value, top in zip(values, tops, strict=True)]


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


def told(values: Sequence[Value]) -> Value:
    """Return values as one: that of all, else a text of them."""
    return values[0] if len({*values}) == 1 else " ".join(map(str, values))


def words(*files: Path) -> set[str]:
    """Return the words in files; none where one of them does not answer."""
    with suppress(ActuationError):
        return {word for file in files for word in content(file).split()}
    return set()


def whole(file: Path) -> int:
    """Return the whole number that a file says. Raises ActuationError."""
    text = content(file)
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise ActuationError(f"{file} says {text[:40]!r}, which is no whole number")
    return int(text)


def numbers(*files: Path) -> list[int]:
    """Return the whole numbers in files, ascending; none where one of them does not answer."""
    found = (word for word in words(*files) if word.isdecimal() and len(word) <= MOST_DIGITS)
    return sorted({int(word) for word in found})


def scaled(number: int, unit: int) -> int | float:
    """Return a number in a greater unit, whole where it is."""
    return number / unit if number % unit else number // unit


def ceiling(
    files: Sequence[Path], ladder: Sequence[int], floor: str, unit: int, top: str = ""
) -> FileKnob:
    """Return the knob over files that limit a clock; `floor` is the file beside that limits it from below.

    What is under a floor that is set is not offered: the kernel would refuse it. `top` is the file beside
    with the most that one can say, empty where there is none.
    """
    least = max(numbers(*(file.with_name(floor) for file in files)), default=0)
    tops = [file.with_name(top) for file in files] if top else []
    return FileKnob(files, tuple(scaled(n, unit) for n in ladder if n >= least), unit, tops)


def span(ends: Sequence[int], step: int = STEP_KHZ) -> list[int]:
    """Return the ladder from the first to the last of these numbers, nothing where that is no ladder."""
    if not ends or ends[-1] - ends[0] > MOST_RUNGS * step:
        return []
    return [*range(ends[0], ends[-1], step), ends[-1]]


@dataclass(frozen=True, slots=True)
class Policy:
    """A clock domain that has a CPU at work. `weight` is how strong its cores are, in any unit."""

    number: int
    file: Path
    ends: tuple[int, ...]
    table: tuple[int, ...]
    weight: int
    small: bool


def cpu_clocks(root: Path) -> dict[str, FileKnob]:
    """Return the knob over the clocks of all CPUs, or one for each kind, named after its first policy.

    A policy that does not answer has no CPU at work, and is left alone.
    """
    groups = kinds(policies(root))
    found: dict[str, FileKnob] = {}
    for like in groups:
        files = [policy.file for policy in like]
        ends = sorted(end for policy in like for end in policy.ends)
        ladder = max((policy.table for policy in like), key=len) or span(ends)
        name = CPU_CLOCK + f".{like[0].number}" * (len(groups) > 1)
        found[name] = ceiling(files, ladder, "scaling_min_freq", KHZ, "cpuinfo_max_freq")
    return found


def policies(root: Path) -> list[Policy]:
    """Return the clock domains that can be limited, by their numbers: those of their first CPUs."""
    found: list[Policy] = []
    small = words(*(f for core in SMALL_CORES for f in root.glob(f"sys/devices/{core}/cpus")))
    folders = {int(f.name[6:]): f for f in root.glob(POLICIES) if f.name[6:].isdecimal()}
    cpus = root / "sys/devices/system/cpu"
    capacity = {number: numbers(cpus / f"cpu{number}/cpu_capacity") for number in folders}
    for number, folder in sorted(folders.items()):
        file = folder / "scaling_max_freq"
        ends = tuple(numbers(folder / "cpuinfo_min_freq", folder / "cpuinfo_max_freq"))
        table = tuple(numbers(folder / "scaling_available_frequencies"))
        if (table or span(ends)) and numbers(file):
            told = capacity[number] if all(capacity.values()) else table or ends
            weight = 0 if small else told[-1]
            found.append(Policy(number, file, ends, table, weight, listed(number, small)))
    return found


def kinds(found: Sequence[Policy]) -> list[list[Policy]]:
    """Return clock domains by the kind of their cores, each in its order."""
    groups: list[list[Policy]] = []
    for policy in sorted(found, key=lambda p: (-p.weight, -len(p.table), p.number)):
        like = next((group for group in groups if alike(policy, group)), [])
        if not like:
            groups.append(like)
        like.append(policy)
    ordered = [sorted(group, key=lambda policy: policy.number) for group in groups]
    return sorted(ordered, key=lambda group: group[0].number)


def alike(policy: Policy, group: Sequence[Policy]) -> bool:
    """Return whether a domain's cores are like those of stronger ones: a table is then a part of theirs."""
    first, last = group[0], group[-1]
    same = policy.small == last.small and bool(policy.table) == bool(last.table)
    fits = first.table[: len(policy.table)] == policy.table
    return same and fits and policy.weight >= LIKE * last.weight


def listed(number: int, lists: Collection[str]) -> bool:
    """Return whether a CPU is in one of the kernel's lists, such as `0-3,8`."""
    parts = [part.split("-") for cpus in lists for part in cpus.split(",")]
    spans = [part for part in parts if all(n.isdecimal() and len(n) <= MOST_DIGITS for n in part)]
    return any(int(span[0]) <= number <= int(span[-1]) for span in spans)
