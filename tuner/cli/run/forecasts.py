"""The saving of finished studies of the same board and workload, as a forecast beside an observation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.core import Estimate, Phase, Setting, render_setting
from tuner.presentation.texts import improved, requested_metrics, sized
from tuner.verbs.table import Verbs
from tuner.wire import StudyView


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The saving of a setting that a study holds on another device: measured there, not here.

    `saving` is the share by which the objective's `metric` is better there, with its standard error, or
    its gain in the metric's unit if `relative` is false.
    """

    study: str
    devices: tuple[str, ...]
    board: str
    workload: str
    setting: Setting
    metric: str
    saving: Estimate
    relative: bool
    text: str


def forecasts(api: Verbs[StudyView], board: str, workload: str) -> Iterator[Forecast]:
    """Yield the saving of each study of this board and workload that holds more than its baseline.

    Raises LinkError and its kin: the tuner does not answer.
    """
    devices = {view.device.id: view.device for view in api.devices()}
    for view in api.studies():
        first = devices.get(view.devices[0])
        alike = first is not None and (first.board, view.workload) == (board, workload)
        if (
            not alike
            or view.phase is not Phase.HOLDING
            or view.confirmed in (None, view.baseline.setting)
        ):
            continue
        gain, metric = improved(api.report(view.id)), requested_metrics(view)[0]
        if gain is None or view.confirmed is None:
            continue
        verb = "saved" if gain.amount.mean >= 0.0 else "cost"
        text = (
            f"study {view.id} on {', '.join(view.devices)} {verb} "
            f"{sized(gain, metric, view.quantities)} of {metric} at "
            f"{render_setting(view.confirmed)}; it was not measured in this observation"
        )
        yield Forecast(
            study=view.id,
            devices=view.devices,
            board=board,
            workload=workload,
            setting=view.confirmed,
            metric=metric,
            saving=gain.amount,
            relative=gain.relative,
            text=text,
        )
