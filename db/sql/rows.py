"""Rows to core values and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert
from sqlalchemy.orm import Session

from db.codec import (
    Json,
    decode_limit,
    decode_metrics,
    decode_signals,
    decode_space,
    encode_limit,
    encode_metrics,
    encode_setting,
    encode_signals,
    encode_space,
)
from db.schema import (
    DeviceRow,
    EstimateRow,
    LeaseRow,
    MeasurementRow,
    ObservationRow,
    ReportRow,
    TrialRow,
)
from tuner.core import (
    Applied,
    Device,
    Estimate,
    Lease,
    Level,
    Load,
    Measurement,
    Observation,
    Origin,
    Outcome,
    Phase,
    Report,
    Scope,
    Trial,
    TrialState,
)


def keep_window(session: Session, measurement: Measurement | None, **owner: object) -> None:
    """Store what a window showed, where there is one; `owner` names whose it is, by columns."""
    if measurement is not None:
        keep_windows(session, [(measurement, owner)])


def keep_windows(session: Session, windows: Sequence[tuple[Measurement, Json]]) -> None:
    """Store what windows showed, each with the columns that name whose it is, alike for all.

    By statements: mapped objects take three times as long, and every trial and held window comes here.
    """
    if not windows:
        return
    connection = session.connection()
    numbers = connection.scalars(
        insert(MeasurementRow).returning(MeasurementRow.id, sort_by_parameter_order=True),
        [_window_values(measurement) | owner for measurement, owner in windows],
    )
    shown = [
        {"measurement_id": number, **_estimate_values(position, metric, estimate)}
        for number, (measurement, _) in zip(numbers, windows, strict=True)
        for position, (metric, estimate) in enumerate(measurement.estimates.items())
    ]
    if shown:
        connection.execute(insert(EstimateRow), shown)


def to_measurement(row: MeasurementRow) -> Measurement:
    """Return what a window showed."""
    return window_of(row, {e.metric: to_estimate(e) for e in row.estimates})


def window_of(row: MeasurementRow, estimates: Mapping[str, Estimate]) -> Measurement:
    """Return what a window showed, from its columns and the estimates of its metrics."""
    return Measurement(
        estimates=estimates,
        started_at=row.started_at,
        seconds=row.seconds,
        overhead_s=row.overhead_s,
        load=Load(row.completed, row.failed, row.utilisation),
        context=row.context,
        throttled=tuple(row.throttled),
        foreign=row.foreign_share,
        sources=row.sources,
    )


def trial_of(row: TrialRow, measurement: Measurement | None) -> Trial:
    """Return a trial, from its columns and what its window showed."""
    return Trial(
        number=row.number,
        setting=row.setting,
        phase=Phase(row.phase),
        context=row.context,
        device=row.device_id or "",
        state=TrialState(row.state),
        attempt=row.attempt,
        started_at=row.started_at,
        ended_at=row.ended_at,
        why=row.why,
        measurement=measurement,
        broke=decode_limit(row.broke),
        reason=row.reason,
    )


def applied_of(device: str, row: Row[*tuple[Any, ...]], at: datetime) -> Applied:
    """Return what a device is set to, from a note's columns."""
    return Applied(
        device=device,
        setting=row.setting,
        level=Level(row.level),
        at=at,
        study=row.study_id,
        revision=row.revision,
    )


def report_values(report: Report) -> Json:
    """Return the columns of a report but its id."""
    return {
        "study_id": report.study,
        "trial_number": report.trial,
        "device_id": report.device,
        "attempt": report.attempt,
        "token": report.token,
        "nonce": report.nonce,
        "state": report.outcome.state.value,
        "broke": encode_limit(report.outcome.broke),
        "reason": report.outcome.reason,
        "received_at": report.received_at,
        "late": report.late,
    }


def report_of(row: ReportRow, measurement: Measurement | None) -> Report:
    """Return a report, from its columns and what its window showed."""
    return Report(
        study=row.study_id,
        trial=row.trial_number,
        device=row.device_id,
        attempt=row.attempt,
        token=row.token,
        nonce=row.nonce,
        outcome=Outcome(
            state=TrialState(row.state),
            measurement=measurement,
            broke=decode_limit(row.broke),
            reason=row.reason,
        ),
        received_at=row.received_at,
        late=row.late,
    )


def to_lease(row: LeaseRow) -> Lease | None:
    """Return the lease of a row, None where only its token is left."""
    if row.study_id is None or row.trial_number is None:
        return None
    return Lease(
        device=row.device_id,
        study=row.study_id,
        trial=row.trial_number,
        attempt=row.attempt,
        token=row.token,
        nonce=row.nonce,
        agent=row.agent,
        expires_at=row.expires_at,
    )


def device_values(device: Device) -> Json:
    """Return the columns of a device but its id."""
    return {
        "kind": device.kind,
        "board": device.board,
        "driver": device.driver,
        "agent": device.agent,
        "workload": device.workload,
        "workload_version": device.workload_version,
        "seen_at": device.seen_at,
        "description": {
            "space": encode_space(device.space),
            "metrics": encode_metrics(device.metrics),
            "signals": encode_signals(device.signals),
            "cannot": dict(device.cannot),
            "versions": dict(device.versions),
            "shared": device.shared,
        },
    }


def to_device(row: DeviceRow) -> Device:
    """Return the device of a row."""
    return device_of(row, described(row.description))


def described(description: Json) -> Json:
    """Return the fields of a device that its description has."""
    return {
        "space": decode_space(description["space"]),
        "metrics": decode_metrics(description["metrics"]),
        "signals": decode_signals(description["signals"]),
        "cannot": description["cannot"],
        "versions": description["versions"],
        "shared": description["shared"],
    }


def device_of(row: DeviceRow, fields: Json) -> Device:
    """Return a device, from its columns and what its description has."""
    return Device(
        id=row.id,
        kind=row.kind,
        board=row.board,
        driver=row.driver,
        agent=row.agent,
        workload=row.workload,
        workload_version=row.workload_version,
        seen_at=row.seen_at,
        **fields,
    )


def observation_values(observation: Observation) -> Json:
    """Return the columns of an observation but its id."""
    return {
        "study_id": observation.study,
        "device_id": observation.device,
        "started_at": observation.measurement.started_at,
        "setting": encode_setting(observation.setting),
        "at": observation.at,
    }


def to_observation(row: ObservationRow) -> Observation:
    """Return the observation of a row."""
    return Observation(
        study=row.study_id,
        device=row.device_id,
        setting=row.setting,
        measurement=to_measurement(row.measurement),
        at=row.at,
    )


def _window_values(measurement: Measurement) -> Json:
    load = measurement.load
    return {
        "started_at": measurement.started_at,
        "seconds": measurement.seconds,
        "overhead_s": measurement.overhead_s,
        "completed": load.completed,
        "failed": load.failed,
        "utilisation": load.utilisation,
        "context": dict(measurement.context),
        "throttled": list(measurement.throttled),
        "foreign_share": measurement.foreign,
        "sources": dict(measurement.sources),
    }


def _estimate_values(position: int, metric: str, estimate: Estimate) -> Json:
    return {
        "metric": metric,
        "position": position,
        "mean": estimate.mean,
        "stderr": estimate.stderr,
        "n": estimate.n,
        "low": estimate.low if math.isfinite(estimate.low) else None,
        "high": estimate.high if math.isfinite(estimate.high) else None,
        "origin": estimate.origin.value,
        "scope": estimate.scope.value,
    }


def to_estimate(row: EstimateRow) -> Estimate:
    """Return the estimate of one metric."""
    return Estimate(
        row.mean,
        row.stderr,
        row.n,
        -math.inf if row.low is None else row.low,
        math.inf if row.high is None else row.high,
        Origin(row.origin),
        Scope(row.scope),
    )
