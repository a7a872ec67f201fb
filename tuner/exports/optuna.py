"""Export studies to Optuna's storage, for its dashboard: settings, objective and violations of limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner import files
from tuner.core import ConfigError, StoreError, TrialState, Value
from tuner.exports.studies import (
    STUDY,
    TRIAL,
    ExportCount,
    ExportedStudy,
    circumstances,
    first_line,
    numbers,
    shown_url,
    trial_id,
)
from tuner.presentation.texts import changed_fields
from tuner.wire import TrialView

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

CONSTRAINTS = "constraints"
"""The system attribute of a trial's constraints; of the two forms that Optuna reads, its dashboard's."""
WRITTEN_WITH = "jouletune.written_with"
"""The attribute with the limits and ranges of a study's export: Optuna cannot change an ended trial."""


class OptunaExport:
    """Writes studies into an Optuna storage, each as `jouletune/STUDY`.

    Raises:
        ConfigError: Optuna is not installed, or the URL is not a storage of Optuna.
        StoreError: its database does not answer.
    """

    def __init__(self, storage: str) -> None:
        try:
            import optuna
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{error.name} is not installed", hint="pip install 'jouletune[optuna]'"
            ) from None
        self._url = shown_url(storage)
        _make_private(storage)
        with self._refusals():
            self._storage = optuna.storages.RDBStorage(storage)

    def write(self, study: ExportedStudy) -> ExportCount:
        """Write a study and add the ended trials that the storage lacks.

        If limits or ranges have changed since the last export, the whole study is rewritten: Optuna cannot
        change an ended trial.

        Raises:
            StoreError: the storage does not answer, or refuses the request.
        """
        with self._refusals():
            return self._write(study)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn errors of Optuna and of its database into ours.

        Raises:
            ConfigError: the URL is not a storage of Optuna, or its driver is not installed.
            StoreError: the storage does not answer, or refuses the request.
        """
        hint = "give --storage like sqlite:///optuna.db or postgresql+psycopg://…"
        try:
            yield
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"{self._url!r} is not a storage of Optuna: {first_line(error)}", hint=hint
            ) from None
        except Exception as error:
            kind = type(error)
            if kind.__module__.partition(".")[0] not in ("optuna", "sqlalchemy"):
                raise
            if kind.__name__ in ("ArgumentError", "NoSuchModuleError"):
                raise ConfigError(f"{self._url!r} is not a storage of Optuna", hint=hint) from None
            raise StoreError(
                f"the storage {self._url} does not answer or refused the request: {first_line(error)}",
                hint=hint,
            ) from None

    def _write(self, study: ExportedStudy) -> ExportCount:
        """Write a study with its attributes and new trials; delete a former export if it is outdated."""
        import optuna

        goal, metric = study.objective
        name, view = f"jouletune/{study.view.id}", study.view
        ranges = {knob: _range(values) for knob, values in _values(study).items()}
        written_with = json.dumps(
            {
                "limits": [[x.metric, x.op, x.value] for x in view.limits],
                "ranges": {
                    k: optuna.distributions.distribution_to_json(r) for k, r in ranges.items()
                },
            },
            sort_keys=True,
        )
        former: set[object] = set()
        if name in optuna.get_all_study_names(self._storage):
            existing = optuna.load_study(study_name=name, storage=self._storage)
            if existing.user_attrs.get(WRITTEN_WITH) != written_with:
                former = _ids(existing)
                optuna.delete_study(study_name=name, storage=self._storage)
        optuna_study = optuna.create_study(
            study_name=name,
            storage=self._storage,
            direction="maximize" if goal == "maximize" else "minimize",
            load_if_exists=True,
        )
        self._describe(optuna_study, study)
        written, ended = _ids(optuna_study), list(study.ended)
        new = [trial for trial in ended if trial_id(trial) not in written]
        for trial in new:
            optuna_study.add_trial(_frozen(trial, metric, ranges, study))
        # Last, so that an interrupted export is written again from the start.
        if optuna_study.user_attrs.get(WRITTEN_WITH) != written_with:
            optuna_study.set_user_attr(WRITTEN_WITH, written_with)
        changed = sum(trial_id(trial) in former for trial in new)
        return ExportCount(added=len(new) - changed, changed=changed, known=len(ended) - len(new))

    def _describe(self, optuna_study: Any, study: ExportedStudy) -> None:  # noqa: ANN401  a study of Optuna's
        """Store the study's properties as user attributes of Optuna's study."""
        view = study.view
        about = changed_fields(view) | {
            STUDY: view.id,
            "objective": view.objective,
            "devices": list(view.devices),
            "workload": view.workload,
            "policy": view.policy,
            "constraints": list(view.constraints),
            "limits": [f"{x.metric} {x.op} {x.value:g}" for x in view.limits],
            "phase": str(view.phase),
            "why": view.phase_why,
        }
        for name, value in about.items():
            if optuna_study.user_attrs.get(name) != value:
                optuna_study.set_user_attr(name, value)


def _ids(optuna_study: Any) -> set[object]:  # noqa: ANN401  a study of Optuna's
    """Return our ids of the trials that an Optuna study has."""
    return {trial.user_attrs.get(TRIAL) for trial in optuna_study.get_trials(deepcopy=False)}


def _values(study: ExportedStudy) -> dict[str, list[Value]]:
    """Return the values of each knob: those that its device offers, and others that trials used."""
    tried = [trial.setting for trial in study.trials]
    offered: Mapping[str, tuple[Value, ...]] = {k.name: k.values for k in study.knobs}
    names = dict.fromkeys(name for setting in tried for name in setting)
    return {
        name: list(dict.fromkeys([*offered.get(name, ()), *(s[name] for s in tried if name in s)]))
        for name in names
    }


def _range(values: list[Value]) -> BaseDistribution:
    """Return a range if all values are numbers, else a categorical choice."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    numeric = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numeric) < len(values):
        return CategoricalDistribution(values)
    if all(isinstance(value, int) for value in numeric):
        return IntDistribution(int(min(numeric)), int(max(numeric)))
    return FloatDistribution(float(min(numeric)), float(max(numeric)))


def _frozen(
    trial: TrialView,
    metric: str,
    ranges: Mapping[str, BaseDistribution],
    study: ExportedStudy,
) -> FrozenTrial:
    """Return a trial in Optuna's form. A violation is at most 0 if the mean keeps the limit.

    A trial that lacks an estimate of any limited metric has no violations.
    """
    from optuna.trial import TrialState as State
    from optuna.trial import create_trial

    shown = trial.metrics.get(metric)
    state = State.FAIL
    if trial.state is TrialState.COMPLETED and shown is not None:
        state = State.PRUNED if trial.censored else State.COMPLETE
    limits = study.view.limits
    violations = [
        (1.0 if x.op == "<=" else -1.0) * (trial.metrics[x.metric].mean - x.value)
        for x in limits
        if x.metric in trial.metrics
    ]
    frozen = create_trial(
        state=state,
        value=shown.mean if state is State.COMPLETE and shown is not None else None,
        params=dict(trial.setting),
        distributions={name: ranges[name] for name in trial.setting},
        # A censored trial gives only a bound: no value.
        intermediate_values={0: shown.mean}
        if state is State.PRUNED and shown is not None
        else None,
        user_attrs={TRIAL: trial_id(trial), **numbers(trial), **circumstances(trial)},
        # As a list: optuna-dashboard 0.21 knows no constraints by name yet.
        system_attrs={CONSTRAINTS: violations}
        if limits and len(violations) == len(limits)
        else None,
    )
    frozen.datetime_start = _local(trial.started_at)
    frozen.datetime_complete = _local(trial.ended_at or trial.started_at)
    return frozen


def _local(at: datetime) -> datetime:
    """Return a time as Optuna keeps it: this machine's local time, without a time zone."""
    return at.astimezone().replace(tzinfo=None)


def _make_private(storage: str) -> None:
    """Create the file of an SQLite storage if it does not exist, readable only by its owner."""
    scheme, _, path = storage.partition(":///")
    if scheme.partition("+")[0] == "sqlite" and path:
        with suppress(OSError):  # opening the storage reports it
            files.make_private(Path(path.partition("?")[0]))
