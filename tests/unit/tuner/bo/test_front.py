"""Limits on the cost of a suggestion for a Pareto front."""

from __future__ import annotations

from dataclasses import replace

import pytest
from botorch.acquisition.multi_objective import logei
from torch.utils import cpp_extension

from policies import load_policy
from tests.builders import asked, baseline, past, window
from tuner.core import Objective, Try


def test_no_program_is_compiled_for_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object, **__: object) -> None:
        pytest.fail("BoTorch compiles its kernel: a killed compiler would leave a lock behind")

    monkeypatch.setattr(cpp_extension, "load", compiled)
    monkeypatch.setattr(logei, "_load_attempted", False)
    study = replace(asked(4), second_objective=Objective("latency_p99_ms"))
    suggestion = load_policy("pareto").suggest(past(study, baseline(study, window(10.0, 100.0))))
    assert isinstance(suggestion, Try)
