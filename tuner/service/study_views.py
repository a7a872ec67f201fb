"""Views of studies for operators; unchanged studies are neither read nor computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tuner.core import (
    ACTIVE,
    Device,
    Limit,
    Study,
    StudyStamp,
    Trial,
    UnreadableStudy,
)
from tuner.service.inventory import device_of
from tuner.service.views import faulty_view, stored_view, study_view, unreadable_view
from tuner.study.exploring import waits_to_explore
from tuner.study.loop import Loop
from tuner.wire import StudyView


class StudyViews:
    """Keeps the view of each study, with the stamp of the state that it shows."""

    def __init__(self) -> None:
        self._cached: dict[str, tuple[StudyStamp, StudyView]] = {}

    def every(self, loop: Loop) -> list[StudyView]:
        """Return all studies, oldest first. A study whose view fails shows the reason and hides none."""
        studies, cached = loop.store.studies, self._cached
        stamps = studies.stamps()
        for outdated in cached.keys() - stamps.keys():
            cached.pop(outdated, None)
        changed = [n for n, stamp in stamps.items() if n not in cached or cached[n][0] != stamp]
        loaded = studies.stored(among=None if len(changed) == len(stamps) else changed)
        fresh = {study.id: study for study in loaded}
        present = _present_on(loop, _devices(loop))
        views = []
        for name in stamps:
            study = fresh.get(name)
            if isinstance(study, UnreadableStudy):
                views.append(unreadable_view(study))
            elif study is not None or name in cached:  # else it was deleted since
                views.append(self._row(loop, name, study, present))
        return views

    def briefs(
        self, loop: Loop, studies: Sequence[tuple[Study | UnreadableStudy, Limit | None]]
    ) -> list[StudyView]:
        """Return present views, each with its unmet limit, without the trials, which are not read."""
        present, rows = _present_on(loop, _devices(loop)), loop.changes.rows("the page of studies")

        def brief(study: Study, unmet: Limit | None) -> StudyView:
            return present(stored_view(study, unmet=unmet))

        return [
            unreadable_view(study)
            if isinstance(study, UnreadableStudy)
            else rows.each(study.id, partial(brief, study, unmet), partial(faulty_view, study))
            for study, unmet in studies
        ]

    def one(self, loop: Loop, study: Study, trials: Sequence[Trial] | None = None) -> StudyView:
        """Return the view of a study; its trials are read if they are not given."""
        return _present_on(loop, {})(self._kept(loop, study, trials))

    def _row(
        self, loop: Loop, name: str, study: Study | None, present: Callable[[StudyView], StudyView]
    ) -> StudyView:
        """Return the view of a study in the list; if that fails, with the reason."""
        return loop.changes.rows("the list of studies").each(
            name,
            lambda: present(self._cached[name][1] if study is None else self._kept(loop, study)),
            lambda why: faulty_view(study or loop.store.studies.get(name), why),
        )

    def _kept(self, loop: Loop, study: Study, trials: Sequence[Trial] | None = None) -> StudyView:
        """Return a study's cached view, computed again if the study or its trials have changed."""
        listed = loop.changes.trials(study.id) if trials is None else trials
        running = sum(not trial.state.final for trial in listed)
        stamp = StudyStamp(study.created_at, study.revision, len(listed), running)
        cached_stamp, view = self._cached.get(study.id, (None, None))
        if view is None or cached_stamp != stamp:  # ended trials do not change
            view = study_view(study, listed, loop.store.studies.latest(study.id).why)
            self._cached[study.id] = stamp, view
        return view


def _devices(loop: Loop) -> Mapping[str, Device]:
    """Return all devices by id, for the views of many studies."""
    return {device.id: device for device in loop.store.devices.list()}


def _present_on(loop: Loop, read: Mapping[str, Device]) -> Callable[[StudyView], StudyView]:
    """Return what adds a view's present obstacles, which change without a change of the study.

    Devices that are not among those `read` are read.
    """
    stopped, here = loop.store.stops.current() is not None, loop.presence

    def present(view: StudyView) -> StudyView:
        active = view.phase in ACTIVE
        devices = [read.get(n) or device_of(loop, n) for n in view.devices] if active else []
        now = {
            "offline": tuple(d.id for d in devices if not here.online(d, view)),
            "unable": here.unable(view.devices) if active else "",
            "stopped": stopped,
            "waits": waits_to_explore(view.exploration, loop.now()) if active else "",
        }
        return view.model_copy(update=now)

    return present
