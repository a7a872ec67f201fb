"""`jouletune device`: devices, their knobs and metrics, and their applied settings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Annotated

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.cli.options import DeviceId, Yes, confirm, user_name, whole
from tuner.core import ConfigError, NotFound, PeriodSaving, Phase, Unreadable, by_reason
from tuner.moments import ago, moment, when
from tuner.presentation.figures import change, joined
from tuner.presentation.standing import confirmed, device_status, released, status, stopped
from tuner.presentation.studies import readable
from tuner.presentation.texts import gained, observed_lines, saved_by_period
from tuner.study.moves import in_words
from tuner.wire import Change, DeviceView, StoppedDevice, StopView, StudyView

Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=VALUE",
        help="Only devices with this label, board, workload or host; repeat it for several.",
    ),
]
SavedSince = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Only the saving since this time, like 7d or 2026-11-01."
    ),
]
SHOWN_VALUES = 6
"""A knob with more values is shown as its range."""
COLUMNS = (
    "=device", "status", "study", "~applied", "+workload", "+board", "+labels", "+last report", "+reason",
    "+knobs", "+metrics",
)  # fmt: skip


@with_api(watch=True, lists=True)
def list_(api: Api, label: Labels = None) -> Answer:
    """List the registered devices, one a line: status, study and applied setting."""
    views = labelled(api.devices(), label or [])
    nothing = "no devices yet; an agent registers them: `jouletune agent serve`"
    return Answer(views, Rows(COLUMNS, map(_row, views), nothing))


def labelled(views: Sequence[DeviceView], labels: Sequence[str]) -> list[DeviceView]:
    """Return the devices that have all of the labels, each `NAME=VALUE`.

    Raises:
        ConfigError: a label has another form.
        NotFound: no device has all labels.
    """
    matching = list(views)
    for label in labels:
        name, equals, value = label.partition("=")
        if not (name and equals):
            raise ConfigError(f"--label cannot be {label!r}", hint="write NAME=VALUE, like rack=a1")
        matching = [view for view in matching if view.device.trait(name) == value]
    if labels and not matching:
        available = sorted({text for view in views for text in _labels(view)})
        raise NotFound(
            f"no device has {' and '.join(labels)}", hint=f"labels: {joined(available, 'none')}"
        )
    return matching


def _labels(view: DeviceView) -> list[str]:
    """Return a device's labels as `NAME=VALUE`, sorted."""
    return [f"{name}={value}" for name, value in sorted(view.device.labels.items())]


def _row(view: DeviceView) -> tuple[str, ...]:
    """Return a device in `COLUMNS`."""
    about = view.device
    return (
        about.id,
        device_status(view),
        view.study or "–",
        change(view.applied.setting, about.space.default) if view.applied else "–",
        about.workload,
        about.board,
        joined(_labels(view), "–"),
        when(view.last_seen),
        view.error or view.unable or "–",
        joined(map(str, about.space.knobs)),
        joined(f"{metric.name} ({metric.origin})" for metric in about.metrics),
    )


@with_api()
def show(api: Api, device: DeviceId, since: SavedSince = "") -> Answer:
    """Show a device: the applied setting, since when and by which study, its saving, knobs and metrics."""
    start = moment("--since", since, datetime.now(timezone.utc))
    view = the_device(api.devices(), device)
    study = next((one for one in api.studies() if one.id == view.study), None)
    lines = [f"{name:<12}{text}" for name, text in _facts(view, study)]
    periods: tuple[PeriodSaving, ...] = ()
    report = readable(lambda study: api.report(study, start), study.id) if study else None
    if isinstance(report, Unreadable):
        lines.append(f"{'error':<12}{report}")
    elif study is not None and report is not None:
        periods = report.bill.periods
        if study.phase is Phase.HOLDING:
            lines.append(f"{'saving':<12}{gained(report) or 'none'}")
        for name, saved, basis in saved_by_period(report):
            lines.append(f"{'saved':<12}{name}: {saved} ({basis})")
    seen = api.observed(view.device.id, start) if view.device.kind else None  # else unreadable
    if seen is not None and (view.device.observed or seen.last is not None):
        lines += [
            f"{'observed':<12}{text}" for text in observed_lines(seen, view.device.quantities)
        ]
    return Answer({"device": view, "study": study, "saved": periods, "observed": seen}, lines)


def the_device(views: Sequence[DeviceView], name: str) -> DeviceView:
    """Return the device with an id or a unique prefix of one. Raises NotFound."""
    fitting = [view for view in views if view.device.id.startswith(name)]
    exact = [view for view in fitting if view.device.id == name]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    if fitting:
        ids = joined(view.device.id for view in fitting)
        raise NotFound(f"{name!r} is the beginning of several devices", hint=f"choose one of {ids}")
    raise NotFound(f"there is no device {name!r}", hint="`jouletune device list` has all devices")


def _facts(view: DeviceView, study: StudyView | None) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each line of `device show`."""
    about, now = view.device, datetime.now(timezone.utc)
    yield "device", about.id
    if about.board:  # an unreadable device has none
        yield "board", f"{about.board}, driver {about.driver}"
    if about.labels:
        yield "labels", joined(_labels(view))
    yield "workload", f"{about.workload} {about.workload_version}".strip()
    reported = f"last report {when(view.last_seen)} ({ago(view.last_seen, now)})"
    yield "status", f"{device_status(view)}, {reported}"
    for why in (view.error, view.unable):
        if why:
            yield "reason", why
    if view.applied is not None:
        applied = view.applied
        yield "applied", change(applied.setting, about.space.default)
        by = f", study {applied.study} revision {applied.revision}" if applied.study else ""
        yield "since", f"{when(applied.at)} ({ago(applied.at, now)}), {applied.level}{by}"
    if study is not None:
        yield "study", f"{study.id}: {status(study)}"
    if view.context:
        yield "load", in_words(view.context)
    for knob in about.space.knobs:
        values = (
            joined(map(str, knob.values))
            if len(knob.values) <= SHOWN_VALUES
            else (f"{knob.values[0]} to {knob.values[-1]} ({len(knob.values)} values)")
        )
        yield "knob", f"{knob}: {values}; default {knob.default}"
    yield "metrics", joined(f"{metric.name} ({metric.origin})" for metric in about.metrics)
    if about.shared:
        yield "shared", about.shared
    for names, why in by_reason(dict(sorted(about.cannot.items()))):
        yield "unavailable", f"{names}: {why}"


@with_api()
def forget(api: Api, device: DeviceId) -> Answer:
    """Remove a device from the list if it will not return; its studies and trials stay."""
    api.forget(device, Change(who=user_name()))
    done = f"device {device} is removed from the list; its studies and trials stay"
    return Answer({"forgotten": device}, done)


WAIT_S = 180.0
"""The longest wait for the devices: a lease, a hold's window and a restore together take less."""
LOOK_S = 0.5
Lift = Annotated[bool, typer.Option("--lift", help="End it; studies continue.")]
Why = Annotated[
    str, typer.Option("--why", metavar="TEXT", callback=whole, help="The reason, shown meanwhile.")
]


@with_api(quiet=True)
def stop_all(api: Api, lift: Lift = False, why: Why = "", yes: Yes = False) -> Answer:
    """Restore every device to its original setting until --lift.

    Asks first. The stop outlasts restarts. Waits until every device confirms; exits with 1 if one does not.
    """
    change = Change(who=user_name(), why=why)
    if lift:
        was = api.stop_state().in_force
        message = "stop lifted; every study continues" if was else "no emergency stop was active"
        return Answer(api.lift(change), message)
    if not api.stop_state().in_force:
        confirm("restore every device to its original setting and pause all tuning?", yes)
    view = _waited(api, api.stop_all(change))
    lines = [stopped(view), *(_state_text(device) for device in view.devices)]
    return Answer(view, lines, failed=any(one.state != "original" for one in view.devices))


@with_api()
def release(api: Api, device: DeviceId, lift: Lift = False, why: Why = "") -> Answer:
    """Restore a device to its original setting until --lift; its study waits.

    Outlasts restarts. Waits until the device confirms; exits with 1 if it does not.
    """
    change = Change(who=user_name(), why=why)
    if lift:
        stop, released_too = api.stop_state(), False
        with suppress(NotFound):  # a device that is forgotten stays released, too
            about = the_device(api.devices(), device)
            device, released_too = about.device.id, about.released
        was = released_too if stop.in_force else api.stop_state(device).in_force
        now = api.lift(change, device)
        done = "is no longer released; its study continues" if was else "was not released"
        return Answer(now, f"{device} {done}{', but all devices are stopped' * now.in_force}")
    about = the_device(api.devices(), device)
    device = about.device.id
    view = _waited(api, api.stop_all(change, device), device)
    study = api.study(about.study) if about.study else None
    lines = [*(_state_text(one) for one in view.devices), released(device, study)]
    return Answer(view, lines, failed=any(one.state != "original" for one in view.devices))


def _waited(api: Api, view: StopView, device: str | None = None) -> StopView:
    """Return a stop once every device is restored or offline, or after `WAIT_S`; count up on stderr."""
    deadline, shown = time.monotonic() + WAIT_S, ""
    while any(d.state == "not yet" for d in view.devices) and time.monotonic() < deadline:
        if (line := f"stop stored; {confirmed(view)}") != shown:
            shown = line
            typer.echo(line, err=True)
        time.sleep(LOOK_S)
        view = api.stop_state(device)
    return view


def _state_text(device: StoppedDevice) -> str:
    """Return a device's state, with a next step if it is not confirmed to be restored."""
    if device.state == "original":
        return f"{device.device} is at its original setting"
    state = (
        f"OFFLINE since {when(device.last_seen)}, its setting is unknown"
        if device.state == "offline"
        else f"has not confirmed its original setting within {WAIT_S:g} s"
    )
    return (
        f"{device.device} {state}; on its host run `jouletune agent revert --stay`, "
        "or as root `jouletune actuator restore --all --stay`"
    )
