"""What a run tunes: from the flags, or the two jobs it does without any."""

from __future__ import annotations

from dataclasses import dataclass

from agents.devices.catalogue import known_truth, specs_in
from agents.workloads import simulated
from policies import demand_policy
from tuner.cli.runfile import RunJob
from tuner.core import ConfigError, Device, InvalidInput, Objective, Safety, Terms
from tuner.core.quantities import standard
from tuner.service.drafts import read_constraints, usual_draft
from tuner.wire import StudyDraft

CONTROL = "sobol"
"""The policy beside which every other is shown, where true values exist."""

SIMULATED = RunJob(device="simulated:orin", trials=20, window_s=10.0)
DEMO = SIMULATED.model_copy(
    update={"constraints": ("latency_p99_ms <= 40", "throughput_per_s >= 0.98x baseline")}
)
"""The first thing a newcomer sees: a camera's board, 25 frames/s; the saving may not cost throughput."""
REAL = RunJob(device="cpu", workload="reference", trials=20, window_s=4.0)
GPU = RunJob(device="nvidia:0", trials=15, window_s=4.0)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the flags say; what is empty or None was not given."""

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


def demand_consent(device: str, *, restart: bool, llm: bool) -> None:
    """Return quietly where a run restarts a server only by request. Raises ConfigError."""
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
    """Return the jobs that the flags ask for, refusing at once what can be seen to be wrong.

    Without a device it is the main job: a simulated board first, then the reference workload on
    this machine.

    Raises:
        InvalidInput: a device, policy, constraint, objective, number of trials or length is wrong, or needs
            a device to go with it.
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
    """Return the job that a device does where the flags leave it open."""
    if device == REAL.device:
        return REAL
    if device.split(":")[0] == "jetson":
        return GPU
    if not device.startswith("nvidia:"):
        return SIMULATED
    # Only the simulated NVML library brings a workload along; a real GPU runs the operator's.
    return GPU.model_copy(update={"workload": "simulated" if simulated.is_there() else ""})


def _job(default: RunJob, wishes: Wishes) -> RunJob:
    job = default.model_copy(
        update={
            "policy": wishes.policy or default.policy,
            "objective": wishes.objective,
            "constraints": default.constraints
            if wishes.constraints is None
            else wishes.constraints,
            "trials": default.trials if wishes.trials is None else wishes.trials,
            "window_s": default.window_s if wishes.window_s is None else wishes.window_s,
            "seed": wishes.seed or 0,
            "safety": wishes.safety or default.safety,
            "transfer": wishes.transfer,
            "allow_restart": wishes.allow_restart,
        }
    )
    demand_policy(job.policy)
    read_constraints(job.constraints or (), {})
    # A bare name that is not standard may be the workload's own metric: the tuner knows it by then.
    if job.objective and (" " in job.objective.strip() or standard(job.objective.strip())):
        Objective.parse(job.objective)
    terms(job)
    return job


def terms(job: RunJob) -> Terms:
    """Return what a job may spend. Raises InvalidInput."""
    return Terms(
        trials=job.trials,
        window_s=job.window_s,
        safety=job.safety,
        energy_share=job.energy_share,
        transfer=job.transfer,
        allow_restart=job.allow_restart,
    )


def draft(job: RunJob, device: Device, policy: str, who: str) -> StudyDraft:
    """Return the study a job asks for on a device, choosing what the job left open.

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
