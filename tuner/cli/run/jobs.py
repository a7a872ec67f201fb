"""The jobs of a run: from its flags, or the two default jobs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from agents.devices.catalogue import known_truth, specs_in
from agents.workloads import simulated
from policies import demand_policy
from tuner.cli.runfile import RunJob
from tuner.core import ConfigError, Device, InvalidInput, Objective, Safety, Terms
from tuner.core.quantities import standard
from tuner.service.drafts import read_constraints, usual_draft
from tuner.wire import StudyDraft

CONTROL = "sobol"
"""The policy to which every other is compared if true values exist."""

SIMULATED = RunJob(device="simulated:orin", trials=20, window_s=10.0)
DEMO = SIMULATED.model_copy(
    update={"constraints": ("latency_p99_ms <= 40", "throughput_per_s >= 0.98x baseline")}
)
"""A new user's first study: a camera's board at 25 frames/s, whose saving may not cost throughput."""
REAL = RunJob(device="cpu", workload="reference", trials=20, window_s=4.0)
GPU = RunJob(device="nvidia:0", trials=15, window_s=4.0)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The values of the flags; empty or None if a flag was not given."""

    device: str = ""
    workload: str = ""
    policy: str = ""
    objective: str = ""
    constraints: tuple[str, ...] | None = None
    trials: int | None = None
    window_s: float | None = None
    seed: int | None = None
    safety: Safety | None = None
    foreign_share: float | None = None
    transfer: bool = True
    allow_restart: bool = True


OF_RUN = RunJob.model_fields.keys()
OPTIONS = OF_RUN - {"device", "workload"}
"""The wishes that a job takes as they are."""


def demand_consent(device: str, *, restart: bool, llm: bool) -> None:
    """Return if --allow-restart agrees with the device: required for a unit. Raises ConfigError."""
    units = [spec for spec in specs_in(device) if spec.startswith("unit:")]
    if units and not restart:
        raise ConfigError(
            f"a change of {units[0]} restarts it, which is not allowed",
            hint="add --allow-restart: requests in progress are lost at each change of a flag",
        )
    if restart and not (units or llm):
        raise ConfigError(
            "--allow-restart needs --llm, or a unit:NAME.service in --device",
            hint="leave it out: a service file's own [restart] is used without it",
        )


def requested_jobs(wishes: Wishes) -> list[RunJob]:
    """Return the jobs of the flags; refuse wrong flags before a process starts.

    Without a device the jobs are a simulated board, then the reference workload on this machine.

    Raises:
        InvalidInput: a device, policy, constraint, objective, number of trials or length is wrong, or
            --device is missing.
    """
    if not wishes.device:
        for name in ("workload", "objective"):
            if getattr(wishes, name):
                raise InvalidInput(f"--{name} needs a device", hint="give --device, too")
        return [_job(default, wishes) for default in (DEMO, REAL)]
    device, workload = wishes.device, wishes.workload
    if device.startswith("simulated:") and workload:
        device, workload = f"{device}/{workload}", ""
    default = _usual(device)
    known_truth(device)
    about = {"device": device, "workload": workload or default.workload}
    return [_job(default.model_copy(update=about), wishes)]


def _usual(device: str) -> RunJob:
    """Return the job with a device's defaults."""
    if device == REAL.device:
        return REAL
    if device.split(":")[0] == "jetson":
        return GPU
    if not device.startswith("nvidia:"):
        return SIMULATED
    # Only the simulated NVML library includes a workload; a real GPU runs the operator's.
    return GPU.model_copy(update={"workload": "simulated" if simulated.is_there() else ""})


def _job(default: RunJob, wishes: Wishes) -> RunJob:
    """Return a default job with the values of the flags. Raises InvalidInput."""
    given = {n: v for n, v in asdict(wishes).items() if v not in (None, "") and n in OPTIONS}
    job = default.model_copy(update=given)
    demand_policy(job.policy)
    read_constraints(job.constraints or (), {})
    # A bare name that is not standard may be a metric of the workload; the tuner checks it later.
    if job.objective and (" " in job.objective.strip() or standard(job.objective.strip())):
        Objective.parse(job.objective)
    terms(job)
    return job


def terms(job: RunJob) -> Terms:
    """Return the terms of a job's study. Raises InvalidInput."""
    return Terms(**{f.name: getattr(job, f.name) for f in fields(Terms) if f.name in OF_RUN})


def draft(job: RunJob, device: Device, policy: str, who: str) -> StudyDraft:
    """Return the draft of a job's study on a device, with defaults for values that the job leaves open.

    Raises:
        InvalidInput: as `tuner.service.drafts.usual_draft` does.
    """
    study_draft = StudyDraft(
        devices=(device.id,),
        objective=job.objective,
        constraints=job.constraints,
        policy=policy,
        seed=job.seed,
        terms=terms(job),
        who=who,
    )
    return usual_draft(study_draft, device)
