"""The record of `jouletune run` in its state folder, which `--resume` reads."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tuner import files
from tuner.core import ConfigError, Safety, first_fault

NAME = "run.json"
VERSION = 1


class RunJob(BaseModel):
    """One target of a run: the request and its progress.

    With an empty `objective` or `constraints` of None the defaults follow from the device's metrics.
    `study` and `control` are ids, empty until they are created; `reported` is true once the job is
    done. Only a run of an earlier release has an `energy_share`. Without `allow_restart`, knobs that
    restart the workload stay at their defaults.
    """

    model_config = ConfigDict(extra="forbid")

    device: str
    workload: str = ""
    policy: str = "polythrottle"
    objective: str = ""
    constraints: tuple[str, ...] | None = None
    trials: int = 20
    window_s: float = 10.0
    seed: int = 0
    safety: Safety = Safety.BALANCED
    energy_share: float | None = None
    transfer: bool = True
    allow_restart: bool = True
    study: str = ""
    control: str = ""
    reported: bool = False

    @property
    def spec(self) -> str:
        """The agent's argument: the device, with the workload that runs on it."""
        return f"{self.device}={self.workload}" if self.workload else self.device


class RunRecord(BaseModel):
    """A whole run: its database, its jobs, and the words of `workload proxy` if it starts an engine."""

    model_config = ConfigDict(extra="forbid")

    version: int = VERSION
    db: str
    seed: int = 0
    foreign_share: float | None = None
    engine: tuple[str, ...] = ()
    jobs: list[RunJob]

    @property
    def finished(self) -> bool:
        """Whether every job has been reported."""
        return all(job.reported for job in self.jobs)


def read_run(state_dir: Path) -> RunRecord | None:
    """Return the last run of a state folder; None if there was no run.

    Raises:
        ConfigError: the file cannot be read, or another release wrote it.
    """
    file = state_dir / NAME
    try:
        record = RunRecord.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except ValidationError as error:
        raise ConfigError(
            f"{file} is damaged ({first_fault(error)})",
            hint="delete it to start a new run; the studies stay in the database",
        ) from None
    if record.version != VERSION:
        raise ConfigError(
            f"{file} is of version {record.version}, this release writes {VERSION}",
            hint="delete it to start a new run; the studies stay in the database",
        )
    return record


def forget_run(state_dir: Path) -> None:
    """Remove the record, so that `--resume` finds no run. Raises StoreError."""
    files.remove(state_dir / NAME)


def write_run(state_dir: Path, record: RunRecord) -> None:
    """Replace the record; only its owner may read it, as a URL may contain a password.

    Raises:
        StoreError: the write fails.
    """
    files.write(state_dir / NAME, record.model_dump_json(indent=2) + "\n", 0o600)
