"""`jouletune run --keep`: the result of a run, held by the services.

The services confirm the result with a new study. Its values are those that the run chose and the
services' defaults; it measures a baseline, compares and holds as every study does. The run's
measurements are not copied as evidence, for two reasons. Another agent made them, at the load of that
hour, before the device was restored. And a permission to create a study must not allow invented
measurements. The confirmation costs a few windows. A setting that does not save with the services, or
breaks a limit, is not held.

The run restores its device before the request to the services. If they refuse, nothing is altered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agents.config import Attachment
from agents.host.host import Host
from agents.main import device_ids
from tuner.cli.run.conduct import watched
from tuner.cli.run.display import Display
from tuner.cli.run.jobs import terms
from tuner.cli.run.results import Result
from tuner.cli.runfile import RunJob
from tuner.client import Client
from tuner.core import Conflict, NotFound, Phase, TuningError, Value, setting_key
from tuner.presentation.figures import change, joined
from tuner.wire import Change, DeviceView, StudyDraft, StudyView


@dataclass
class Keeper:
    """Requests the services of a tuner to hold the result of a run.

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
