"""Carry out a run: one job after the other; each step is recorded so that the run can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agents.holding.journal import Journal
from tuner.cli.run.display import Display
from tuner.cli.run.jobs import CONTROL, draft, terms
from tuner.cli.run.processes import AGENT, Stand, StartedEngine, stand
from tuner.cli.run.results import Result, StudyResult, outcome
from tuner.cli.runfile import RunJob, RunRecord, forget_run, write_run
from tuner.core import (
    Device,
    InvalidInput,
    LinkError,
    NotFound,
    Phase,
    Safety,
    StoreError,
    TuningError,
)
from tuner.main import local_operations
from tuner.service.drafts import space_of
from tuner.study.changes import TUNER
from tuner.verbs.table import Verbs
from tuner.wire import Change, StudyDraft, StudyView


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
        view = watched(api, study, title, self.display, self._refuse_stopped)
        _refuse_broken(api, view)
        ended = outcome(api, study, self.job, self.device)
        _stop(api, study, "the run has reported it")
        return ended

    def _refuse_stopped(self, view: StudyView) -> None:
        """Raise TuningError if a process ended, or if every device is stopped."""
        self.at_work.check()
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
