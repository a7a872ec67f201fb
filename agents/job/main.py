"""`agents.job.main begin|end`: from Slurm's Prolog and Epilog, as root. Ends with 0 whatever happens.

Any other exit status of a Prolog or Epilog drains the node. A wish that is refused, or fails, is logged and
noted in the job's record; the job starts at the original settings.
"""

import argparse
import logging
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.job.record import JobRecords, utc_now
from agents.job.slurm import SlurmJob, job_of, require_alloc, uuids_of
from agents.job.wish import JobGrants, job_grants, require_granted, wish_of
from tuner.errors import ActuationError, TuningError

log = logging.getLogger("jouletune-job")

BEGIN_S = 5.0
"""How long a Prolog waits for the actuator: Slurm gives a batch job BatchStartTimeout, by default 10 s."""
SOCKET = "/run/jouletune/actuator.sock"


def begin(environ: Mapping[str, str], config: Path, records: JobRecords, root: Path) -> None:
    """Have the job's wish in force on its GPUs; note in its record what became of it.

    What an earlier job left on these GPUs ends first, as its epilog never came.

    Raises:
        InvalidInput: the environment has no job.
    """
    job = job_of(environ)
    for key in {job.key, *records.leases_on(job.gpus)}:
        if records.end(key, signal.SIGUSR1):
            log.warning("event=lease_left job=%s by=%s", key, job.key)
    try:
        wish = wish_of(job.comment)
        if not wish:
            return
        records.prune()
        records.note(job.key, job=job.id, restart=job.restart, uid=job.uid, began_at=utc_now())
        records.note(job.key, wish=wish)
        grants, socket = job_grants(config)
        require_granted(wish, grants)
        require_alloc(job.config)
        _leased(job, wish, grants, Path(socket or SOCKET), records, root)
    except TuningError as error:
        log.warning("event=wish_refused job=%s why=%r", job.key, str(error))
        records.note(job.key, job=job.id, uid=job.uid, state="refused", reason=str(error))


def end(environ: Mapping[str, str], records: JobRecords) -> None:
    """End the job's lease; return once its GPUs are restored. Raises InvalidInput: there is no job."""
    records.end(job_of(environ).key, signal.SIGTERM)


def _leased(
    job: SlurmJob,
    wish: Mapping[str, float],
    grants: JobGrants,
    socket: Path,
    records: JobRecords,
    root: Path,
) -> None:
    """Start the process that keeps the lease, and wait for its answer. Raises TuningError: refused."""
    uuids = uuids_of(job, root)
    heard, answer = os.pipe()
    child = os.fork()
    if child == 0:
        _apart(heard)
        try:
            from agents.job.keeper import JobLease, keep  # not needed by jobs without a wish

            lease = JobLease(job, wish, uuids, grants, root)
            keep(lease, socket, records, answer)
        finally:
            os._exit(0)
    os.close(answer)
    os.waitpid(child, 0)
    ready, _, _ = select.select([heard], [], [], BEGIN_S)
    text = os.read(heard, 4096).decode(errors="replace") if ready else ""
    os.close(heard)
    if text != "leased":
        if not text:
            records.end(job.key, signal.SIGUSR1, wait_s=0.0)
        hint = "see `jouletune actuator status`"
        raise ActuationError(text or f"no lease within {BEGIN_S:g} s", hint="" if text else hint)


def _apart(heard: int) -> None:
    """Become a process that outlives the Prolog, and that slurmd neither waits for nor ends."""
    os.close(heard)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)


def main(arguments: Sequence[str]) -> int:
    """Run one command; always 0."""
    logging.basicConfig(level=logging.INFO, format="jouletune: %(levelname)s %(message)s")
    os.umask(0o022)
    try:
        parser = argparse.ArgumentParser(prog="jouletune job", description=__doc__)
        parser.add_argument("verb", choices=("begin", "end"))
        parser.add_argument("--config", type=Path, default=Path("/etc/jouletune/actuator.toml"))
        parser.add_argument("--state-dir", type=Path, default=Path("/var/lib/jouletune-jobs"))
        given = parser.parse_args(arguments)
        records, root = JobRecords(given.state_dir), Path(os.environ.get("JOULETUNE_ROOT", "/"))
        if given.verb == "begin":
            begin(os.environ, given.config, records, root)
        else:
            end(os.environ, records)
    except SystemExit:  # argparse has printed why
        pass
    except TuningError as error:
        log.error("event=%s why=%r", error.code, str(error))
    except Exception:
        log.exception("event=broken")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
