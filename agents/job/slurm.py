"""A Slurm job from its Prolog's environment, and the GPUs of its gres ids.

Sources: Slurm's "Prolog and Epilog Guide", gres.conf(5), cgroups of slurmstepd. Observed on 22.05.8:
`SLURM_JOB_GPUS` numbers the files of gres.conf from 0, independent of their names, and a shard lists its
GPU as if that were whole: the Prolog of both is the same.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import ConfigError, InvalidInput, NotFound

ALLOC = {"alloc", "contain", "x11"}
"""With any of these PrologFlags the Prolog runs at the job's allocation; the last two imply the first."""
SPANS = r"\d{1,4}(?:-\d{1,4})?"
FILE = re.compile(r"(?i)(?<!\w)File=(\S+)")
GPUS = re.compile(rf"/dev/nvidia(\d{{1,4}}|\[{SPANS}(?:,{SPANS})*\])", re.ASCII)
SHARED = re.compile(r"(?i)(?:^|\s)(?:Name=|Gres=(?:\S*,)?)(shard|mps)\b")
FOREIGN = re.compile(r"(?i)\b(MultipleFiles|NodeName)=")
KEYED = re.compile(r'\s*[-*+/]?=\s*(?:"([^"]*)")?')
"""Before a value, as parse_config.c accepts it: spaces, an operator and quotes."""
PROC = "proc/driver/nvidia/gpus"
MOST_GPUS, MOST_INCLUDES = 256, 4


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one component of a heterogeneous job, on this node; `key` identifies one start of it.

    `listed` has its gres ids as Slurm writes them. `uuids` has its GPUs where another batch system's script
    gives them. `exclusive` is Slurm's own word that no other job may use the node.
    """

    id: int
    restart: int
    uid: int
    comment: str
    listed: str
    config: Path
    node: str
    partition: str
    exclusive: bool
    uuids: tuple[str, ...]
    root: Path

    @property
    def key(self) -> str:
        """Return the job's id and its restart count: a requeued job gets a new lease."""
        return f"{self.id}-{self.restart}"

    @property
    def gpus(self) -> tuple[int, ...]:
        """Return its gres ids. Raises InvalidInput if Slurm wrote another form."""
        if self.listed and not re.fullmatch(r"\d{1,4}(,\d{1,4}){0,255}", self.listed, re.ASCII):
            shown, hint = self.listed[:20], "GPUs of a type or with shards of MIG are not supported"
            raise InvalidInput(f"SLURM_JOB_GPUS is {shown!a}, not a list of numbers", hint=hint)
        return tuple(map(int, filter(None, self.listed.split(","))))


def job_of(environ: Mapping[str, str]) -> SlurmJob:
    """Return the job of a Prolog's or Epilog's environment. Raises InvalidInput if it has none."""

    def number(name: str, default: str = "") -> int:
        text = environ.get(name, default)
        if not re.fullmatch(r"\d{1,20}", text, re.ASCII):
            hint = "run it from Slurm's Prolog= and Epilog="
            raise InvalidInput(f"{name} is {text[:20]!a}, not a number", hint=hint)
        return int(text)

    return SlurmJob(
        number("SLURM_JOB_ID"),
        number("SLURM_JOB_RESTART_COUNT", "0"),
        number("SLURM_JOB_UID"),
        environ.get("SLURM_JOB_COMMENT", ""),
        environ.get("SLURM_JOB_GPUS", ""),
        Path(environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")),
        re.sub(r"[^\w.-]", "", environ.get("SLURMD_NODENAME", "")),
        environ.get("SLURM_JOB_PARTITION", ""),
        environ.get("SLURM_JOB_OVERSUBSCRIBE", "") == "NO",
        tuple(filter(None, environ.get("JOULETUNE_JOB_GPUS", "").split(","))),
        Path(environ.get("JOULETUNE_ROOT", "/")),
    )


def seen(job: SlurmJob) -> bool:
    """Return whether the job is visible on this node: a cgroup of version 2 or 1, or a step's socket.

    True, too, where a folder vanished during the search: only a whole search shows an absence. The cgroups
    of Slurm 26.05 do not show the job's id, so any counts (slurm-job-exporter issue 66).
    """
    cgroups, spool = job.root / "sys/fs/cgroup", job.root / _spool(job).lstrip("/")
    v2, v1 = "system.slice/*slurmstepd.scope", f"*/slurm*/uid_{job.uid}/job_{job.id}"
    groups = (f"{v2}/job_{job.id}", f"{v2}/s[0-9A-Z]*", v1)
    shown = (*((cgroups, group) for group in groups), (spool, f"*_{job.id}.*"))
    try:
        return any(True for top, pattern in shown for _ in top.glob(pattern))
    except OSError:
        return True


def _spool(job: SlurmJob) -> str:
    """Return slurmd's folder, which has each step's socket."""
    with suppress(ConfigError):
        for folder in _values(job.config, "SlurmdSpoolDir"):
            return folder.replace("%n", job.node).replace("%h", job.node)
    return "/var/spool/slurmd"


def require_alloc(job: SlurmJob) -> None:
    """Raise ConfigError unless slurm.conf makes the Prolog run at the job's allocation."""
    flags = [] if job.uuids else [v.split(",") for v in _values(job.config, "PrologFlags")]
    if not job.uuids and not {f.lower() for names in flags for f in names} & ALLOC:
        hint = "set PrologFlags=Alloc in it, or in a file that it includes"
        raise ConfigError(f"{job.config} has no PrologFlags=Alloc", hint=hint)


def has_node(job: SlurmJob) -> bool:
    """Return whether no other job may use the node, by the job or by its partition in slurm.conf."""
    lines = [] if job.uuids else _lines(job.config)
    exclusive = re.compile(
        rf"(?i)PartitionName={re.escape(job.partition)}\s(.*\s)?OverSubscribe=EXCLUSIVE(\s.*)?"
    )
    return job.exclusive or any(map(exclusive.fullmatch, lines))


def uuids_of(job: SlurmJob) -> list[str]:
    """Return the UUIDs of the job's own GPUs.

    Raises:
        InvalidInput: GPUs of this node are shared, and the job has not the whole node.
        ConfigError: gres.conf does not determine the file of an id.
        NotFound: the host has no such GPU.
    """
    if job.uuids or not job.gpus:
        return [*job.uuids]
    if (how := _shared(job)) and not has_node(job):
        hint = "use a partition with OverSubscribe=EXCLUSIVE: a Prolog shows no difference to a GPU"
        raise InvalidInput(f"the job's GPU may be shared: its node has Gres={how}", hint=hint)
    minors, uuids = _minors(job), dict(_by_minor(job.root))
    try:
        return [uuids[minors[gpu]] for gpu in job.gpus]
    except (IndexError, KeyError):
        listed = ", ".join(f"{minor}: {uuid}" for minor, uuid in sorted(uuids.items())) or "none"
        hint = f"GPUs of this host by device minor: {listed}"
        raise NotFound(f"no GPU for the gres ids {job.gpus} of {minors}", hint=hint) from None


def _shared(job: SlurmJob) -> str:
    """Return `shard` or `mps` if Slurm's files give the job's node such a gres, else nothing."""
    for line in [*_lines(job.config), *_lines(job.config.with_name("gres.conf"))]:
        named = re.search(r"(?i)\bNodeName=(\S+)", line)
        names = named[1].lower().split(",") if named else []
        firsts = [name.partition("[")[0] for name in names]
        ours = not job.node or "default" in firsts or any(map(job.node.lower().startswith, firsts))
        if (match := SHARED.search(line)) and (ours or not named):
            return match[1].lower()
    return ""


def _minors(job: SlurmJob) -> list[int]:
    """Return the device minor of each gres id of a GPU.

    Ids number the files of gres.conf, or the GPUs that AutoDetect lists.

    Raises:
        ConfigError: the file has MultipleFiles= or NodeName=, another driver's GPU, or its order may not be
            that of the minors, because of a sort or of the bus.
    """
    gres = job.config.with_name("gres.conf")
    every, minors = _lines(gres), list[int]()
    lines = [line for line in every if re.search(r"(?i)(^|\s)Name=gpu\b", line)]
    files = [None if FOREIGN.search(line) else FILE.search(line) for line in lines]
    for file in (match[1] for match in files if match):
        match = GPUS.fullmatch(file.removeprefix(str(job.root).rstrip("/")))
        if match is None:
            hint = "NVIDIA GPUs by their files: Name=gpu File=/dev/nvidia[0-N]"
            raise ConfigError(f"{gres}: {file[:60]} is not /dev/nvidiaN", hint=hint)
        for first, _, last in (span.partition("-") for span in match[1].strip("[]").split(",")):
            minors += range(int(first), min(int(last or first), int(first) + MOST_GPUS) + 1)
    if not lines and any(re.search(r"(?i)\bAutoDetect=(nvml|nvidia)\b", line) for line in every):
        minors = [minor for minor, _ in _by_minor(job.root)]
    if not minors or minors != sorted({*minors}) or None in files:
        hint = (
            "one line for this node: Name=gpu File=/dev/nvidia[0-N]; MIG devices are not supported"
        )
        raise ConfigError(f"{gres} does not name the GPUs' files in order", hint=hint)
    return minors


def _by_minor(root: Path) -> Iterator[tuple[int, str]]:
    """Yield the minor number and the UUID of each GPU that NVIDIA's driver lists."""
    for file in sorted((root / PROC).glob("*/information")):
        text = file.read_text(errors="replace")
        minor = re.search(r"^Device Minor:\s*(\d+)$", text, re.MULTILINE)
        uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)$", text, re.MULTILINE)
        if minor and uuid:
            yield int(minor[1]), uuid[1]


def _lines(path: Path, depth: int = 0) -> list[str]:
    """Return the lines of a Slurm file and of those it includes, without comments. Raises ConfigError."""
    hint = "the Prolog needs SLURM_CONF, as slurmd sets it"
    if depth == MOST_INCLUDES:
        raise ConfigError(f"{path} is included more than {depth} deep", hint=hint)
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    joined = re.sub(r"\\\n", " ", text)
    lines = [line.partition("#")[0].strip() for line in joined.splitlines()]
    lines = [KEYED.sub(lambda m: "=" + re.sub(r"\s", "_", m[1] or ""), line) for line in lines]
    named = ((line, re.fullmatch(r"(?i)include\s+(\S+)", line)) for line in lines)
    inner = (
        [line] if one is None else _lines(path.parent / one[1], depth + 1) for line, one in named
    )
    return [line for part in inner for line in part]


def _values(path: Path, key: str) -> list[str]:
    """Return the values of a key of a Slurm file. Raises ConfigError."""
    return [m[1] for line in _lines(path) if (m := re.fullmatch(rf"(?i){key}=(\S+)", line))]
