"""Identical devices of one study that each try a different setting: eligibility and scaling.

A study's metrics are those of its devices together: joules are summed; the latency is that of the
slowest. While tuning, a trial may run on one device alone. Its metrics are scaled to all devices by
the ratio of their baseline to its own; the limits that cut its window short are scaled the other
way. Baseline, confirming and holding run on all devices together, so nothing is held that was not
proven on each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, variance

from tuner.core import (
    Device,
    Estimate,
    ExploresApart,
    Limit,
    Mode,
    Outcome,
    OverDevices,
    Phase,
    Policy,
    Report,
    Study,
    Trial,
    Worth,
    pool_windows,
    quantity_of,
    weigh,
    windows,
)
from tuner.study.moves import needed_metrics

Shares = Mapping[str, Estimate]
"""By metric: the ratio of the value of all devices together to that of one, at the baseline."""

ALIKE: Shares = {}
"""Factors of a trial of all devices: its metrics are used unchanged."""


def may_explore(study: Study, devices: Sequence[Device], policy: Policy) -> bool:
    """Return whether the devices of a study may each run a trial of their own now.

    Only while tuning, with a policy that supports it, and if the devices differ only by name. Each
    must be on its own host: several GPUs of one host may serve the same items, so that their
    settings mix in each metric. For shared metrics it is unknown whether both devices measured the
    same thing.
    """
    if len(devices) < 2 or study.phase is not Phase.TUNING or study.terms.mode is not Mode.SEARCH:
        return False
    if not (isinstance(policy, ExploresApart) and policy.explores_apart):
        return False
    if len({d.agent for d in devices}) < len(devices):
        return False
    return all(not d.shared and _make(d) == _make(devices[0]) for d in devices)


def _make(device: Device) -> tuple[object, ...]:
    """Return the properties that identical devices share."""
    return (
        device.kind, device.board, device.driver, device.workload, device.workload_version,
        device.space,
    )  # fmt: skip


def shares(
    study: Study,
    trials: Sequence[Trial],
    device: str,
    reports: Callable[[int], Sequence[Report]],
) -> Shares:
    """Return the factors from one device to all, by the baseline windows that all devices measured.

    The standard error is that of the device's own level. The error of the level of all devices is left
    out, because the baseline, with which all is compared, has it too. Empty if a device has not
    reported a window.
    """
    baseline = weigh(study, trials).of(study.baseline)
    together, own = [], []
    for trial in windows(baseline.trials if baseline else (), least=Worth.SOLID):
        measured = {r.device: r.outcome.measurement for r in reports(trial.number) if not r.late}
        each = {name: w.estimates for name in study.devices if (w := measured.get(name))}
        if not trial.device and len(each) == len(study.devices):
            together.append(trial.shown)
            own.append(each)
    whole = pool_windows(together, study.quantities)
    levels = {
        name: pool_windows([window[name] for window in own], study.quantities)
        for name in study.devices
    }
    return {
        metric: _share(
            estimate,
            {name: levels[name][metric] for name in study.devices},
            device,
            quantity_of(metric, study.quantities).over_devices,
        )
        for metric, estimate in whole.items()
    }


def _share(
    whole: Estimate, levels: Mapping[str, Estimate], device: str, over: OverDevices
) -> Estimate:
    """Return the factor from one device's metric to that of all devices."""
    own = _level(levels, device)
    if whole.mean * own.mean <= 0.0:
        return Estimate(float(len(levels)) if over is OverDevices.SUM else 1.0)
    ratio = whole.mean / own.mean
    return Estimate.of_mean(ratio, ratio * own.stderr / abs(own.mean))


def _level(levels: Mapping[str, Estimate], device: str) -> Estimate:
    """Return a device's own level of a metric, from each device's windows.

    The level is shrunk towards the mean of all devices, as far as their own errors explain the
    spread: four identical devices then have eight windows together, not two each.
    """
    own, count = levels[device], len(levels)
    mean = fmean(e.mean for e in levels.values())
    noise = fmean(e.stderr**2 for e in levels.values())
    spread = max(0.0, variance([e.mean for e in levels.values()]) - noise)
    weight = spread / (spread + noise) if spread + noise > 0.0 else 1.0
    doubt = weight * own.stderr**2 + (1.0 - weight) ** 2 * noise / count
    return Estimate.of_mean(mean + weight * (own.mean - mean), math.sqrt(doubt))


def scaled(outcome: Outcome, share_of: Shares) -> Outcome:
    """Scale one device's report to all devices; drop metrics that not all devices report."""
    window, broke = outcome.measurement, outcome.broke
    if window is None:
        return outcome
    estimates = {
        name: _times(shown, share_of[name])
        for name, shown in window.estimates.items()
        if name in share_of
    }
    if broke is not None and broke.metric in share_of:
        broke = replace(broke, value=broke.value * share_of[broke.metric].mean)
    return replace(outcome, measurement=replace(window, estimates=estimates), broke=broke)


def _times(shown: Estimate, share: Estimate) -> Estimate:
    """Return a device's estimate times the share; the share's error widens it."""
    factor, doubt = share.mean, abs(shown.mean) * share.stderr
    mean, stderr = shown.mean * factor, shown.stderr * factor
    own = replace(shown, mean=mean, stderr=stderr, low=shown.low * factor, high=shown.high * factor)
    return own.widened(doubt)


def own_limits(limits: Sequence[Limit], share_of: Shares) -> tuple[Limit, ...]:
    """Convert limits on the metrics of all devices into limits on one device's metrics."""
    return tuple(
        replace(x, value=x.value / share_of[x.metric].mean) if x.metric in share_of else x
        for x in limits
    )


def is_scalable(study: Study, share_of: Shares) -> bool:
    """Return whether every metric that counts can be scaled from one device to all."""
    return set(needed_metrics(study)) <= share_of.keys()
