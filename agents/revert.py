"""An operator's revert of devices, with or without a running agent: once, or until lifted."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timezone
from pathlib import Path

from agents.config import Attachment
from agents.holding.hold_file import SUFFIX
from agents.holding.journal import Entry, Journal
from agents.host.machine import Host
from agents.main import open_target
from agents.tuner_link.spool import Spool
from tuner import files
from tuner.core import ActuationError, Conflict, NotFound, StoreError, TuningError
from tuner.wire import Reverted

log = logging.getLogger(__name__)

STAY_S = 60.0
"""The wait of `stay` for a running agent, in seconds: it checks every 0.5 s, and devices take time."""
LOOK_S = 0.2


def revert(state_dir: Path, root: Path = Path("/"), *, tell: bool = True) -> list[str]:
    """End every hold of this host and restore its devices; return the devices.

    It continues after a failure, and a second call does nothing. With `tell`, the next agent first reports
    the revert to the tuner, which pauses the studies of the devices.

    Raises:
        NotFound: the folder does not exist.
        Conflict: an agent is running on the folder.
        ActuationError: some devices were not restored; the message lists all of them.
        StoreError: all were restored, but the report to the tuner could not be saved.
    """
    _require(state_dir)
    try:
        with files.lock(state_dir, "agent"):
            return _revert(state_dir, root, tell)
    except Conflict as error:
        raise Conflict(
            error.message, hint=f"{error.hint}, or revert permanently with --stay"
        ) from None


def stay(state_dir: Path, root: Path = Path("/"), patience_s: float = STAY_S) -> list[str]:
    """Restore every device of this host, and keep it so until `lift`, even under an agent; return them.

    Raises:
        NotFound: the folder does not exist.
        StoreError: the folder cannot be written. Devices without an agent were restored, but may change.
        ActuationError: some devices were not restored in time; the message lists all of them.
    """
    _require(state_dir)
    journal, unnoted = Journal(state_dir / "journal"), None
    try:
        journal.stay()
    except StoreError as error:
        unnoted = error
    done = _restore_all(state_dir, root, journal, patience_s)
    if unnoted is not None:
        raise unnoted
    return done


def lift(state_dir: Path) -> bool:
    """Allow changes of this host's devices again; return whether they were blocked.

    Raises:
        NotFound: the folder does not exist.
        StoreError: the folder cannot be written.
    """
    _require(state_dir)
    return Journal(state_dir / "journal").lift()


def _restore_all(state_dir: Path, root: Path, journal: Journal, patience_s: float) -> list[str]:
    """Restore the devices if no agent runs; else wait for the agent to do so. Raises ActuationError."""
    left = devices = [entry.device for entry in journal.devices()]
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return [*revert(state_dir, root, tell=False), *(d for d in devices if d not in left)]
        except Conflict:
            left = [entry.device for entry in journal.devices()]
        if not left:
            return devices
        if time.monotonic() > deadline:
            raise ActuationError(
                f"the agent has not restored {', '.join(left)} within {patience_s:g} s; it keeps trying",
                hint="see its log; if it hangs, stop it and run this again",
            )
        time.sleep(LOOK_S)


def _revert(state_dir: Path, root: Path, tell: bool) -> list[str]:
    """Restore every device in the journal and end its hold. Raises ActuationError, StoreError."""
    done: list[str] = []
    failures: list[str] = []
    unreported: list[str] = []
    journal, spool = Journal(state_dir / "journal"), Spool(state_dir / "spool")
    for entry in journal.devices():
        try:
            _restore(entry, state_dir, root, journal)
        except TuningError as error:
            failures.append(str(error))
        else:
            log.info("event=reverted device=%s", entry.device)
            done.append(entry.device)
        if tell and not spool.put(_word(entry.device, root)):
            unreported.append(entry.device)
    if failures:
        raise ActuationError("; ".join(failures), hint="correct the cause, then revert again")
    if unreported:
        raise StoreError(
            f"{', '.join(unreported)} is restored, but the notice for the "
            "tuner could not be written to disk, so the tuner would continue",
            hint="pause the study before you start the agent",
        )
    return done


def _require(state_dir: Path) -> None:
    """Raise NotFound if the state folder does not exist."""
    if not state_dir.is_dir():
        raise NotFound(
            f"there is no state folder {state_dir}, so no agent used it",
            hint="give the agent's configuration with --config, or its folder with --state-dir",
        )


def _word(device: str, root: Path) -> Reverted:
    """Return the report of a revert for the tuner."""
    at = datetime.now(timezone.utc).isoformat(sep=" ", timespec="milliseconds")
    return Reverted(
        device=device, why=f"an operator reverted {device} on {Host.here(root).name} at {at}"
    )


def _restore(entry: Entry, state_dir: Path, root: Path, journal: Journal) -> None:
    """Open a journalled device, restore it, and remove its hold. Raises TuningError."""
    if "spec" not in entry.attached:
        raise ActuationError(
            f"{entry.device}: its journal does not name the device to open ({entry.damaged})",
            hint="start the agent with that device: it restores what it can",
        )
    attachment = Attachment(entry.attached["spec"], entry.attached.get("workload", ""))
    seed = int(entry.attached.get("seed", "0"))
    try:
        target = open_target(attachment, entry.device, seed, state_dir, root)
        try:
            journal.restore(entry.device, target)
        finally:
            target.close()
    finally:  # even without an answer of the device: the next agent must not resume its hold
        try:
            files.remove(state_dir / "holds" / files.file_name(entry.device, SUFFIX))
        except StoreError as error:
            log.error("event=hold_not_removed device=%s why=%r", entry.device, str(error))
