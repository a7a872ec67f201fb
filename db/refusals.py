"""The errors by which a store refuses a call: the same messages for every database."""

from __future__ import annotations

from tuner.core import Conflict, DeviceBusy, NotFound, StaleRevision, Unauthorised


def no_study(study: str) -> NotFound:
    """Return the error for an unknown study."""
    return NotFound(f"there is no study {study!r}", hint="list them with `jouletune study list`")


def no_trial(study: str, number: int) -> NotFound:
    """Return the error for an unknown trial."""
    return NotFound(
        f"there is no trial {number} in study {study!r}", hint="list the trials of the study"
    )


def no_device(device: str) -> NotFound:
    """Return the error for a device that never registered."""
    return NotFound(f"there is no device {device!r}", hint="start an agent on it")


def no_lease(device: str) -> NotFound:
    """Return the error for a lease that has ended or never existed."""
    return NotFound(f"there is no lease on device {device!r}", hint="request the next assignment")


def id_taken(study: str) -> Conflict:
    """Return the error for a second study with the same id."""
    return Conflict(f"study {study!r} already exists", hint="choose another id")


def device_busy(device: str, owner: str) -> DeviceBusy:
    """Return the error for a device that another active study owns."""
    return DeviceBusy(
        f"device {device!r} belongs to the active study {owner!r}", hint=f"stop {owner!r} first"
    )


def begun_since(study: str) -> StaleRevision:
    """Return the error for a trial that another tuner has begun since the study was read."""
    return StaleRevision(
        f"study {study!r} has changed since it was read",
        hint="read it again",
    )


def revised_since(study: str, carried: int, stored: int) -> StaleRevision:
    """Return the error for a change that was based on an older revision."""
    return StaleRevision(
        f"study {study!r} is at revision {stored}, the change was based on {carried}",
        hint="read it again and repeat the change",
    )


def still_active(study: str, phase: str) -> Conflict:
    """Return the error for deleting a study that still owns its devices."""
    return Conflict(f"study {study!r} is still active ({phase})", hint="stop it first")


def name_taken(name: str) -> Conflict:
    """Return the error for a second token with the same name."""
    return Conflict(
        f"a token named {name} already exists",
        hint=f"choose another name, or `jouletune token revoke {name}` first",
    )


def digest_taken() -> Conflict:
    """Return the error for a token that is already stored under another name."""
    return Conflict("this token already exists", hint="make a new one")


def token_used(name: str) -> Unauthorised:
    """Return the error for an enrolment token that has already enrolled an agent."""
    return Unauthorised(
        f"the enrolment token {name} was already used",
        hint="create a new one with `jouletune token create --enrol`",
    )


def no_token(name: str) -> NotFound:
    """Return the error for a token that is unknown or already revoked."""
    return NotFound(
        f"there is no valid token {name!r}", hint="list them with `jouletune token list`"
    )
