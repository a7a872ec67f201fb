"""`jouletune study setting`: the held or proposed setting as a file that others review."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tuner.cli.answers import Answer
from tuner.cli.asking import Api, with_api
from tuner.cli.options import StudyId
from tuner.core import Conflict, NotFound, Phase
from tuner.moments import when
from tuner.presentation.setting_files import ReviewedSetting, SettingForm, setting_file
from tuner.presentation.texts import gained

CHOSEN = (Phase.HOLDING, Phase.CANARY, Phase.PROPOSED)


@with_api()
def setting(
    api: Api,
    study: StudyId,
    kind: Annotated[
        SettingForm,
        typer.Option(
            "--as",
            help="shell, systemd (a unit), nvidia-smi, compose, helm-values (environment variables), json.",
        ),
    ] = SettingForm.SHELL,
    part: Annotated[
        Literal["", "device", "workload"],
        typer.Option(metavar="PART", help="Only the knobs of the device, or of the workload."),
    ] = "",
    device: Annotated[
        str, typer.Option(metavar="ID", help="Only this device of the study; default: all.")
    ] = "",
) -> Answer:
    """Print the held or proposed setting as commands or a patch, with the reason and the way back.

    A knob that the form cannot express is refused by its name.
    """
    report = api.report(study)
    view = report.study
    if view.plan is None or view.phase not in CHOSEN:
        raise Conflict(
            f"study {view.id} is {view.phase} and holds or proposes no setting",
            hint=f"wait for it: `jouletune study wait {view.id}`",
        )
    if len(view.plan.rows) > 1:
        raise Conflict(
            f"study {view.id} holds a plan of {len(view.plan.rows)} rows by load",
            hint="a file has one setting; `jouletune best --json` has the plan",
        )
    devices = {one.device.id: one.device for one in api.devices()}
    first = devices[view.devices[0]]
    if device and device not in view.devices:
        raise NotFound(f"study {view.id} has no device {device}", hint=", ".join(view.devices))
    held = view.plan.rows[0].setting
    knobs = [k for k in first.space.knobs if part in ("", k.part) and k.name in held]
    chosen = {k.name: held[k.name] for k in knobs}
    baseline = {k.name: view.baseline.setting[k.name] for k in knobs}
    if chosen == baseline:
        raise Conflict(
            f"study {view.id} holds the baseline, so there is nothing to set", hint=view.phase_why
        )
    verb = "proposed" if view.phase is Phase.PROPOSED else "held"
    remarks = [
        f"jouletune study {view.id}, {verb} since {when(api.revisions(study)[-1].at)}",
        f"reason: {view.phase_why}",
        gained(report) or "saving: not measured",
        f"limits: {', '.join(view.constraints) or 'none'}",
        f"measured on: {', '.join(view.devices)} ({first.board})",
    ]
    file = ReviewedSetting(
        chosen, baseline, [device] if device else view.devices, knobs, view.workload, remarks
    )
    text = setting_file(file, kind)
    return Answer(
        {"form": kind, "text": text, "setting": chosen, "baseline": baseline}, text.rstrip()
    )
