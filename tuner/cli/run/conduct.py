"""Carry out a run: one job after the other; each step is recorded so that the run can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agents.config import Attachment
from agents.holding.journal import Journal
from agents.host.machine import Host
from agents.main import device_ids
from tuner.cli.run.display import Display
from tuner.cli.run.jobs import CONTROL, draft, terms
from tuner.cli.run.processes import AGENT, Stand, StartedEngine, discarded, stand
from tuner.cli.run.results import Result, StudyResult, outcome
from tuner.cli.runfile import RunJob, RunRecord, forget_run, write_run
from tuner.cli.study.report import ALLOW_OTHERS, OTHERS_USED
from tuner.client import Client
from tuner.core import (
    Conflict,
    Device,
    InvalidInput,
    LinkError,
    NotFound,
    Phase,
    Safety,
    StoreError,
    TrialState,
    TuningError,
    Value,
    setting_key,
)
from tuner.main import local_operations
from tuner.presentation.figures import change, joined
from tuner.service.drafts import space_of
from tuner.study.changes import TUNER
from tuner.verbs.table import Verbs
from tuner.wire import Change, DeviceView, StudyDraft, StudyView


class NoFreeKnob(InvalidInput):
    """A target has no knob that may be tried; it can only be observed. Offer a knob, or allow restarts."""


LOOK_S = 1.0
"""The interval between polls of a study; shorter ones would disturb the measurement."""
RELEASE_S = 30.0
EMPTY_LOOKS = 4
SETTLED = (Phase.HOLDING, Phase.STOPPED)


def drop_leftovers(last: RunRecord, say: Callable[[str], None]) -> None:
    """Stop the studies that an interrupted run left active, and print each."""
    left = [study for job in last.jobs for study in (job.study, job.control) if study]
    if last.finished or not left:
        return
    try:
        with local_operations(last.db) as api:
            for study in left:
                if _stop(api, study, "a new run began"):
                    say(f"study {study} of the interrupted run is stopped; its trials are kept")
    except StoreError as error:
        say(f"the interrupted run's studies could not be stopped: {error}")


def conduct(
    record: RunRecord,
    state_dir: Path,
    who: str,
    display: Display,
    done: Callable[[Result], None],
    engine: StartedEngine | None = None,
) -> list[Result]:
    """Start tuner and agent, carry out every job, and restore the devices.

    `done` is called with each result. The record is written after every step, and removed if the run is
    refused before it has a study. It ends if an `engine` that it started ends.

    Raises:
        InvalidInput and its kin: a study was refused.
        TuningError: a process ended.
    """
    try:
        return _conducted(record, state_dir, who, display, done, engine)
    except LinkError:
        raise
    except TuningError:
        # The run was refused before it had a study; to resume it would repeat the refusal.
        if not any(job.study for job in record.jobs):
            forget_run(state_dir)
        raise


def _conducted(
    record: RunRecord,
    state_dir: Path,
    who: str,
    display: Display,
    done: Callable[[Result], None],
    engine: StartedEngine | None,
) -> list[Result]:
    """Return the results of all jobs, with tuner and agent running."""
    results: list[Result] = []
    specs = list(dict.fromkeys(job.spec for job in record.jobs))
    beside = None if engine is None else engine.proxy
    with stand(state_dir, record.db, specs, record.seed, record.foreign_share, beside) as at_work:
        for job in record.jobs:
            demand_knob(job, at_work.devices[job.spec].device)
        for number, job in enumerate(record.jobs, 1):
            work = _Work(record, state_dir, at_work, display, job, who)
            title = f"study {number} of {len(record.jobs)}" if len(record.jobs) > 1 else "study"
            results.append(work.carry_out(title))
            done(results[-1])
        _wait_released(at_work, Journal(state_dir / AGENT / "journal"))
    return results


def demand_knob(job: RunJob, device: Device) -> None:
    """Return if the job may try a knob of the device. Raises NoFreeKnob."""
    try:
        space_of((device,), StudyDraft(devices=(device.id,), terms=terms(job)))
    except InvalidInput as error:
        raise NoFreeKnob(error.message, hint=error.hint) from None


@dataclass
class _Work:
    """One job that is carried out."""

    record: RunRecord
    state_dir: Path
    at_work: Stand
    display: Display
    job: RunJob
    who: str
    warned: bool = False

    @property
    def device(self) -> Device:
        """The job's device, as its agent registered it."""
        return self.at_work.devices[self.job.spec].device

    def carry_out(self, title: str) -> Result:
        """Run the study, then the control study if true values exist."""
        job = self.job
        job.study = job.study or self._create(job.policy)
        main = self._tune(job.study, f"{title}: {job.policy} on {self.device.id}")
        result = Result(job=job, board=self.device.board, cannot=self.device.cannot, main=main)
        if main.score is not None and job.policy != CONTROL:
            job.control = job.control or self._create(CONTROL)
            name = f"{title}, the control: {CONTROL} on {self.device.id}"
            result = replace(result, control=self._tune(job.control, name))
        job.reported = True
        write_run(self.state_dir, self.record)
        return result

    def _create(self, policy: str) -> str:
        """Create the study of a policy, and return its id."""
        # The control study, to which the search is compared, predicts nothing and so supports no
        # safety.
        job = self.job
        if policy == CONTROL != job.policy:
            job = job.model_copy(update={"safety": Safety.BALANCED})
        return self.at_work.api.create(draft(job, self.device, policy, self.who)).id

    def _tune(self, study: str, title: str) -> StudyResult:
        """Return the result of a study once it is settled, and stop it: a run holds nothing."""
        write_run(self.state_dir, self.record)
        api = self.at_work.api
        view = watched(api, study, title, self.display, self._check)
        _refuse_broken(api, view)
        ended = outcome(api, study, self.job, self.device)
        _stop(api, study, "the run has reported it")
        return ended

    def _check(self, view: StudyView) -> None:
        """Say once that others use the machine. Raises TuningError: a process ended, or all is stopped."""
        self.at_work.check()
        begins = not (self.warned or view.trials.get(TrialState.COMPLETED))
        if begins and (why := discarded(self.at_work.log, view.id, OTHERS_USED)):
            self.warned = True
            self.display.say(f"    {why}, and repeated; {ALLOW_OTHERS}")
        if view.stopped and view.phase not in SETTLED:
            raise TuningError(
                "every device is stopped, so nothing can be tried",
                hint="lift it with `jouletune stop-all --lift`, then run `jouletune run --resume`",
            )


def watched(
    api: Verbs[StudyView],
    study: str,
    title: str,
    display: Display,
    check: Callable[[StudyView], None] = lambda view: None,
) -> StudyView:
    """Show a study until it is settled, and return it; `check` is called with each state."""
    previous = None
    while True:
        view = api.study(study)
        check(view)
        if (now := (view.phase, view.revision, view.trials)) != previous:
            display.update(title, view, api.trials(study))
            previous = now
        if settled(api, view):
            return view
        time.sleep(LOOK_S)


def settled(api: Verbs[StudyView], view: StudyView) -> bool:
    """Return whether a study is settled: it holds, was stopped, or was paused by the tuner itself."""
    if view.phase is Phase.PAUSED:
        return api.revisions(view.id)[-1].who == TUNER
    return view.phase in SETTLED


def _refuse_broken(api: Verbs[StudyView], view: StudyView) -> None:
    """Stop the study if the tuner paused it before it had a plan.

    Raises:
        TuningError: the tuner paused it, because the policy or every trial failed.
    """
    if view.phase is Phase.PAUSED and view.plan is None:
        _stop(api, view.id, "the run gave up")
        raise TuningError(view.phase_why)


def _stop(api: Verbs[StudyView], study: str, why: str) -> bool:
    """Stop a study that is still active and return whether it was."""
    try:
        if api.study(study).phase is Phase.STOPPED:
            return False
    except NotFound:
        return False
    api.stop(study, Change(who="jouletune run", why=why))
    return True


def _wait_released(at_work: Stand, journal: Journal) -> None:
    """Wait until the agent has restored every device; the end of the stand restores the rest.

    An assigned hold may still be on its way to the agent, so the journal must stay empty for several looks.
    """
    deadline = time.monotonic() + RELEASE_S
    empty = 0
    while empty < EMPTY_LOOKS and time.monotonic() < deadline:
        at_work.check()
        time.sleep(LOOK_S / EMPTY_LOOKS)
        empty = 0 if journal.devices() else empty + 1


@dataclass
class Keeper:
    """Requests the services of a tuner to hold the result of a run: `jouletune run --keep`.

    The services confirm the result with a new study. Its values are those that the run chose and the
    services' defaults; it measures a baseline, compares and holds as every study does. The run's
    measurements are not copied as evidence, for two reasons. Another agent made them, at the load of that
    hour, before the device was restored. And a permission to create a study must not allow invented
    measurements. The run restores its device before the request: a refusal leaves nothing altered.

    `kept` is the services' study once it is created; `why` is the reason why none was created.
    """

    services: Client
    where: str
    who: str
    kept: StudyView | None = None
    why: str = ""
    _device: DeviceView | None = field(default=None, init=False)

    def check(self, job: RunJob) -> None:
        """Return if the services could hold the job's result; called before the job begins.

        Raises:
            NotFound: the device is not registered there.
            Conflict: it is offline, accepts no assignments, or has a study; or every device is stopped.
            LinkError, Unauthorised: the tuner does not answer, or refuses the token.
        """
        if (stop := self.services.stop_state()).in_force:
            raise Conflict(
                f"every device of {self.where} is stopped by {stop.who}, so the result cannot be held",
                hint="lift it with `jouletune stop-all --lift`, or leave out --keep",
            )
        (name,) = device_ids([Attachment.parse(job.spec)], Host.here().name)
        views = {view.device.id: view for view in self.services.devices()}
        if name not in views:
            raise NotFound(
                f"{self.where} has no device {name!r} to hold the result of the run",
                hint=f"registered devices: {joined(views, 'none yet')}; add it to the agent's agent.toml",
            )
        self._device = view = views[name]
        wrong = "" if view.online else "is offline"
        why = view.error or view.unable
        wrong = wrong or (f"accepts no assignments ({why})" if why else "")
        wrong = wrong or (f"has the active study {view.study}" if view.study else "")
        if wrong:
            raise Conflict(
                f"{name} {wrong} at {self.where}, so the result could not be held there",
                hint="correct that or stop that study first, or leave out --keep",
            )

    def keep(self, result: Result, display: Display) -> None:
        """Create the study that holds the run's result, and watch it until it is settled.

        An interrupt ends only the watching; the services continue.

        Raises:
            InvalidInput and its kin: the services refuse the study; nothing is altered.
            TuningError: they did not confirm it; the study is stopped and its device restored.
        """
        if not result.main.won:
            self.why = "the baseline is kept, which needs no study"
            return
        self.kept = self.services.create(self.draft(result))
        title = f"held by the services: study {self.kept.id} at {self.where}"
        self.kept = watched(self.services, self.kept.id, title, display)
        if self.kept.phase is Phase.PAUSED or (
            self.kept.phase is Phase.HOLDING and not self._holds
        ):
            why = self.kept.phase_why
            self.kept = self.services.stop(self.kept.id, Change(who=self.who, why="not confirmed"))
            raise TuningError(
                f"not held by the services: {why}",
                hint=f"study {self.kept.id} at {self.where} is stopped and its "
                "device restored; list its trials with `jouletune trial list`",
            )

    @property
    def _holds(self) -> bool:
        """Whether the services' study holds a setting other than the baseline."""
        view = self.kept
        if view is None or view.plan is None:
            return False
        base = setting_key(view.baseline.setting)
        return any(setting_key(row.setting) != base for row in view.plan.rows)

    def draft(self, result: Result) -> StudyDraft:
        """Return the draft of the study that confirms a run's result, with its values and the defaults.

        Knobs that the run left at the baseline stay there. The number of trials is at most the run's,
        and at most the number of settings other than the baseline.

        Raises:
            Conflict: another workload runs on the services' device.
            InvalidInput and its kin: the device has no such knob or value.
        """
        assert self._device is not None, "call check first"
        device, job, view = self._device.device, result.job, result.main.report.study
        if device.workload != view.workload:
            raise Conflict(
                f"{device.id} runs {device.workload} at {self.where}, the run tuned {view.workload}",
                hint="run the same workload with the services' agent; nothing was changed",
            )
        rows = view.plan.rows if view.plan is not None else ()
        settings = [row.setting for row in rows]
        choices: dict[str, tuple[Value, ...]] = {}
        for knob in device.space.knobs:
            indices = {knob.index(at[knob.name]) for at in settings if knob.name in at}
            indices.add(knob.index(knob.default))
            choices[knob.name] = tuple(knob.values[index] for index in sorted(indices))
        for name in {name for at in settings for name in at}:
            device.space.knob(name)
        size = device.space.restricted(choices).size
        return StudyDraft(
            devices=(device.id,),
            objective=view.objective,
            constraints=view.constraints,
            policy=job.policy,
            seed=job.seed,
            terms=terms(job.model_copy(update={"trials": min(job.trials, max(1, size - 1))})),
            choices=choices,
            who=self.who,
        )

    def outcome_lines(self) -> Sequence[str]:
        """Return lines with the study's state and the next command."""
        if self.kept is None:
            return [f"nothing is kept: {self.why}"]
        view = self.kept
        if view.phase is not Phase.HOLDING or view.plan is None:
            return [f"study {view.id} at {self.where} is {view.phase}: {view.phase_why}"]
        at = change(view.plan.chief(view.baseline.setting), view.baseline.setting)
        what = f"study {view.id} at {self.where} holds {at}: {view.phase_why}"
        return [what, f"release it with `jouletune study stop {view.id} --tuner {self.where}`"]
