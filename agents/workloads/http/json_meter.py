"""Numbers that a service reports in JSON: as they are, or as the growth of one per another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from agents.host.http.local_http import LocalHttp
from agents.host.service_files import finite
from agents.load.window import OpenWindow
from agents.workloads.http.metric_config import JsonNumber
from agents.workloads.http.reading import at
from tuner.core import (
    CounterStep,
    Estimate,
    MeasurementError,
    Reading,
    Scope,
    TuningError,
    demand,
    ratio_estimate,
)


class JsonWindow(OpenWindow):
    """An open window: one request at its start, one at each reading."""

    def __init__(self, http: LocalHttp, numbers: Sequence[JsonNumber]) -> None:
        self._http, self._numbers = http, numbers
        self._looks = [self._look()]

    def _shown(self) -> Reading:
        """Return the metrics so far. Raises MeasurementError."""
        self._looks.append(self._look())
        shown = {one.metric.name: self._estimate(one) for one in self._numbers}
        return Reading({}, {name: one for name, one in shown.items() if one is not None})

    def _look(self) -> Mapping[str, tuple[float, float]]:
        """Return each number with its divisor, now. Raises MeasurementError."""
        try:
            paths = dict.fromkeys(one.path for one in self._numbers)
            responses = {path: self._http.call("GET", path) for path in paths}
            answers = {path: response.json() for path, response in responses.items()}
        except TuningError as error:
            raise MeasurementError(error.message, hint=error.hint) from error
        except ValueError as error:
            raise MeasurementError(f"{self._http.url} did not return JSON: {error}") from None
        return {
            one.metric.name: (
                self._number(one, one.json, answers),
                self._number(one, one.per, answers) if one.per else 1.0,
            )
            for one in self._numbers
        }

    def _number(self, one: JsonNumber, place: str, answers: Mapping[str, Any]) -> float:
        """Return the number at a path of an answer. Raises MeasurementError."""
        try:
            value = finite(
                float(at(answers[one.path], place.split(".")))
            )  # a boolean counts as 0 or 1
        except (LookupError, TypeError, ValueError, OverflowError):
            value = None
        if value is None:
            raise MeasurementError(
                f"there is no number at {place!r} of {self._http.url}{one.path}",
                hint="correct the [[json]] of the service's file",
            )
        return value

    def _estimate(self, one: JsonNumber) -> Estimate | None:
        """Return a number's mean over the readings, or the ratio of its growth."""
        looks = [look[one.metric.name] for look in self._looks]
        if not one.per:
            values = [value for value, _ in looks[1:]]
            if len(values) < 2:
                return None
            spread = statistics.stdev(values) / math.sqrt(len(values))
            return Estimate.of_mean(
                statistics.fmean(values), spread, len(values), scope=Scope.SERVICE
            )
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(looks)]
        for before, now in pairwise(looks):
            demand(CounterStep(f"the counter of {one.metric.name}", before[1], now[1]))
        return ratio_estimate([step for step in steps if step[1] > 0.0], 1.0, one.metric)
