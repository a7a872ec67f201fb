"""A Slurm job from its Prolog's environment, and the GPUs of its gres ids.

Sources: Slurm's "Prolog and Epilog Guide", gres.conf(5), cgroups of slurmstepd. Observed on 22.05.8:
`SLURM_JOB_GPUS` numbers the files of gres.conf from 0, independent of their names, and a shard lists no
GPU.
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
LISTED = re.compile(rf"([^\[]*)\[({SPANS}(?:,{SPANS})*)\]([^\[]*)", re.ASCII)
PROC = "proc/driver/nvidia/gpus"
MOST_GPUS = 256


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one component of a heterogeneous job, on this node; `key` identifies one start of it."""

    id: int
    restart: int
    uid: int
    comment: str
    gpus: tuple[int, ...]
    mps: bool
    config: Path
    node: str = ""

    @property
    def key(self) -> str:
        """Return the job's id and its restart count: a requeued job gets a new lease."""
        return f"{self.id}-{self.restart}"


def job_of(environ: Mapping[str, str]) -> SlurmJob:
    """Return the job of a Prolog's or Epilog's environment. Raises InvalidInput if it has none."""

    def number(name: str, default: str = "") -> int:
        text = environ.get(name, default)
        if not re.fullmatch(r"\d{1,10}", text, re.ASCII):
            hint = "run it from Slurm's Prolog= and Epilog="
            raise InvalidInput(f"{name} is {text[:20]!a}, not a number", hint=hint)
        return int(text)

    gpus = environ.get("SLURM_JOB_GPUS", "")
    if gpus and not re.fullmatch(r"\d{1,4}(,\d{1,4}){0,255}", gpus, re.ASCII):
        hint = "GPUs of a type or with shards of MIG are not supported"
        raise InvalidInput(f"SLURM_JOB_GPUS is {gpus[:20]!a}, not a list of numbers", hint=hint)
    return SlurmJob(
        number("SLURM_JOB_ID"),
        number("SLURM_JOB_RESTART_COUNT", "0"),
        number("SLURM_JOB_UID"),
        environ.get("SLURM_JOB_COMMENT", ""),
        tuple(map(int, filter(None, gpus.split(",")))),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in environ,
        Path(environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")),
        re.sub(r"[^\w.-]", "", environ.get("SLURMD_NODENAME", "")),
    )


def seen(job: SlurmJob, root: Path) -> bool:
    """Return whether the job is visible on this node: a cgroup of version 2 or 1, or a step's socket."""
    cgroups, spool = root / "sys/fs/cgroup", root / _spool(job).lstrip("/")
    v2, v1 = f"system.slice/*slurmstepd.scope/job_{job.id}", f"*/slurm*/uid_{job.uid}/job_{job.id}"
    shown = ((cgroups, v2), (cgroups, v1), (spool, f"*_{job.id}.*"))
    return any(True for top, pattern in shown for _ in top.glob(pattern))


def _spool(job: SlurmJob) -> str:
    """Return slurmd's folder, which has each step's socket."""
    with suppress(ConfigError):
        for folder in _values(job.config, "SlurmdSpoolDir"):
            return folder.replace("%n", job.node).replace("%h", job.node)
    return "/var/spool/slurmd"


def require_alloc(config: Path) -> None:
    """Raise ConfigError unless slurm.conf itself makes the Prolog run at the job's allocation."""
    flags = {f.lower() for v in _values(config, "PrologFlags") for f in v.split(",")}
    if not flags & ALLOC:
        hint = "set PrologFlags=Alloc in that file itself, not in one that it includes"
        raise ConfigError(f"{config} has no PrologFlags=Alloc", hint=hint)


def uuids_of(job: SlurmJob, root: Path) -> list[str]:
    """Return the UUIDs of the job's own GPUs.

    Raises:
        InvalidInput: the job has no GPU, or shares one by MPS or in shards.
        ConfigError: gres.conf does not determine the file of an id.
        NotFound: the host has no such GPU.
    """
    if job.mps:
        raise InvalidInput("the job shares a GPU by MPS", hint="ask for whole GPUs: --gres=gpu:1")
    if not job.gpus:
        why = "the job has no GPU of its own; shards are none"
        raise InvalidInput(why, hint="ask for whole GPUs: --gres=gpu:1")
    minors, uuids = _minors(job.config.with_name("gres.conf"), root), dict(_by_minor(root))
    try:
        return [uuids[minors[gpu]] for gpu in job.gpus]
    except (IndexError, KeyError):
        listed = ", ".join(f"{minor}: {uuid}" for minor, uuid in sorted(uuids.items())) or "none"
        hint = f"GPUs of this host by device minor: {listed}"
        raise NotFound(f"no GPU for the gres ids {job.gpus} of {minors}", hint=hint) from None


def _minors(gres: Path, root: Path) -> list[int]:
    """Return the device minor of each gres id of a GPU.

    Ids number the files of gres.conf, or the GPUs that AutoDetect lists.

    Raises:
        ConfigError: the file has MultipleFiles= or NodeName=, or its order may not be that of the minors,
            because of a sort or of the bus.
    """
    every = _lines(gres)
    lines = [line for line in every if re.search(r"(?i)(^|\s)Name=gpu\b", line)]
    if any(re.search(r"(?i)\b(MultipleFiles|NodeName)=", line) for line in lines):
        hint = "one line for this node with File=/dev/nvidia[0-N]; MIG devices are not supported"
        raise ConfigError(f"{gres}: GPUs with MultipleFiles= or NodeName=", hint=hint)
    files = [one for line in lines for one in re.findall(r"(?i)\bFile=(\S+)", line)]
    names = [name for text in files for name in _expanded(text)]
    minors = [int(m[0]) if (m := re.search(r"\d+$", name, re.ASCII)) else -1 for name in names]
    if not lines and any(re.search(r"(?i)\bAutoDetect=(nvml|nvidia)\b", line) for line in every):
        minors = [minor for minor, _ in _by_minor(root)]
    if not minors or minors != sorted({*minors}) or minors[0] < 0 or len(files) != len(lines):
        why = f"{gres} does not name the GPUs' files in order"
        raise ConfigError(why, hint="list them by number: Name=gpu File=/dev/nvidia[0-N]")
    return minors


def _expanded(text: str) -> Iterator[str]:
    """Yield the files of `/dev/nvidia[0-2,5]`."""
    for one in re.split(r",(?![^\[]*\])", text):
        match = LISTED.fullmatch(one)
        if match is None:
            yield one
            continue
        for span in match[2].split(","):
            first, _, last = span.partition("-")
            for number in range(int(first), min(int(last or first), int(first) + MOST_GPUS) + 1):
                yield f"{match[1]}{number}{match[3]}"


def _by_minor(root: Path) -> Iterator[tuple[int, str]]:
    """Yield the minor number and the UUID of each GPU that NVIDIA's driver lists."""
    for file in sorted((root / PROC).glob("*/information")):
        text = file.read_text(errors="replace")
        minor = re.search(r"^Device Minor:\s*(\d+)$", text, re.MULTILINE)
        uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)$", text, re.MULTILINE)
        if minor and uuid:
            yield int(minor[1]), uuid[1]


def _lines(path: Path) -> list[str]:
    """Return a Slurm file's lines, without comments and continuations. Raises ConfigError."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        hint = "the Prolog needs SLURM_CONF, as slurmd sets it"
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    joined = re.sub(r"\\\n", " ", text)
    return [line.partition("#")[0].strip() for line in joined.splitlines()]


def _values(path: Path, key: str) -> list[str]:
    """Return the values of a key of a Slurm file. Raises ConfigError."""
    return [m[1] for line in _lines(path) if (m := re.fullmatch(rf"(?i){key}\s*=\s*(\S+)", line))]
