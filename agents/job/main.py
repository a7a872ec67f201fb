"""`agents.job.main begin|end [FILE [FOLDER [HOLDS]]]`: from a Prolog and an Epilog. Always exits with 0.

Any other exit status of a Prolog or Epilog drains the node. A request that is refused or fails is logged
and noted in the job's record; the job then starts at the original settings.
"""

import logging
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agents.actuator.grants import ActuatorConfig, load_config
from agents.job.record import BEGIN_S, JobRecords, utc_now
from agents.job.slurm import SlurmJob, job_of, require_alloc
from agents.job.wish import require_granted, wish_of
from tuner.errors import ActuationError, InvalidInput, TuningError

log = logging.getLogger("jouletune-job")

DEFAULTS = (
    "/etc/jouletune/actuator.toml", "/var/lib/jouletune-jobs", "/var/lib/jouletune-agent/holds"
)  # fmt: skip


def begin(environ: Mapping[str, str], config: Path, records: JobRecords, holds: Path) -> None:
    """Put the job's requested setting in force on its devices, and record the result.

    A lease that an earlier job left on these GPUs ends first: its epilog did not run.

    Raises:
        InvalidInput: the environment has no job.
    """
    job, until, gpus = job_of(environ), time.monotonic() + BEGIN_S, tuple[int, ...]()
    with suppress(InvalidInput):  # refused below if there is a wish
        gpus = job.gpus
    left = {job.key, *records.leases_on(gpus, job.uuids)}
    for key in records.end("the next job on its GPU", *left, within_s=BEGIN_S):
        log.warning("event=lease_left job=%s by=%s", key, job.key)
    try:
        wish = wish_of(job.comment, holds)
        if not wish:
            return
        records.prune()
        about = {"job": job.id, "restart": job.restart, "uid": job.uid, "began_at": utc_now()}
        records.note(job.key, **about, wish=wish, gres=gpus, uuids=job.uuids)
        granted = load_config(config)
        require_granted(wish, granted.jobs)
        require_alloc(job)
        _lease(job, wish, granted, records, until)
    except TuningError as error:
        log.warning("event=wish_refused job=%s why=%r", job.key, str(error))
        records.note(job.key, job=job.id, uid=job.uid, state="refused", reason=str(error))


def _lease(
    job: SlurmJob,
    wish: Mapping[str, object],
    config: ActuatorConfig,
    records: JobRecords,
    until: float,
) -> None:
    """Start the process that keeps the lease, and wait for its answer until a time, in seconds.

    Raises:
        TuningError: it is refused.
    """
    heard, answer = os.pipe()
    child = os.fork()
    if child == 0:
        _apart(heard)
        try:
            from agents.job.keeper import JobKeeper  # slow, and not needed without a wish

            JobKeeper(job, wish, config, records).keep(answer)
        finally:
            os._exit(0)
    os.close(answer)
    os.waitpid(child, 0)
    ready, _, _ = select.select([heard], [], [], max(0.0, until - time.monotonic()))
    text = os.read(heard, 4096).decode(errors="replace") if ready else ""
    os.close(heard)  # a lease that is granted later ends, because nobody reads its answer
    if text != "leased":
        hint = "" if text else "see `jouletune actuator status`"
        raise ActuationError(text or f"no lease within {BEGIN_S:g} s", hint=hint)


def _apart(heard: int) -> None:
    """Detach this process: it outlives the Prolog, and slurmd neither waits for it nor ends it."""
    os.close(heard)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)


def main(arguments: Sequence[str]) -> int:
    """Run one command; always return 0."""
    logging.basicConfig(level=logging.INFO, format="jouletune: %(levelname)s %(message)s")
    os.umask(0o022)
    try:
        verb, paths = arguments[0] if arguments else "", arguments[1:]
        if verb not in ("begin", "end") or len(paths) > len(DEFAULTS):
            hint = "begin or end, and up to three paths"
            raise InvalidInput(f"{' '.join(arguments)[:80]!a} is no command", hint=hint)
        config, folder, holds = (*paths, *DEFAULTS[len(paths) :])
        records = JobRecords(Path(folder))
        if verb == "begin":
            begin(os.environ, Path(config), records, Path(holds))
        else:
            records.end("the epilog", job_of(os.environ).key)
    except TuningError as error:
        log.error("event=%s why=%r", error.code, str(error))
    except Exception:
        log.exception("event=broken")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
