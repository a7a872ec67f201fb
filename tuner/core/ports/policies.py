"""What a policy is: one function, and five things that it may say of itself."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tuner.core.decisions import Past, Suggestion
from tuner.core.studies import Study

__all__ = [
    "DecidesSteps",
    "ExploresApart",
    "PlansByLoad",
    "Policy",
    "RefusesStudies",
    "SaysWhatItHeeds",
]


class Policy(Protocol):
    """The judgement: a pure function of the past. Same past, same suggestion, also after a restart."""

    def suggest(self, past: Past) -> Suggestion:
        """Return what to do next: try a setting, wait, or be done with a plan."""


@runtime_checkable
class SaysWhatItHeeds(Protocol):
    """A policy that says which parts of a study it supports: `objective`, `constraints`, `safety`.

    One that does not say supports the first two: to support `safety` it must predict what it tries. What a
    study asks for and its policy does not support is refused when the study is made.
    """

    heeds: frozenset[str]


@runtime_checkable
class RefusesStudies(Protocol):
    """A policy that supports a part of a study in some forms only, and says which it does not."""

    def refuse(self, study: Study) -> None:
        """Return quietly where all of a study is supported. Raises InvalidInput: names what is not."""


@runtime_checkable
class DecidesSteps(Protocol):
    """A policy of continuous studies that judges steps by itself.

    Without `needs_baseline` none is measured, but where a limit is relative to it. `goals` are metrics
    whose constraint ends the study once its course has come to it: no setting is judged by them.
    """

    needs_baseline: bool
    goals: frozenset[str]


@runtime_checkable
class ExploresApart(Protocol):
    """A policy that can suggest while trials run, and whose like devices may so try one each.

    The running trials are in its past, without a measurement: it suggests none of them again, and what
    it suggests beside them is as safe as if their results were never reported.
    """

    explores_apart: bool


@runtime_checkable
class PlansByLoad(Protocol):
    """A policy that gives ranges of a signal settings of their own, where a study's terms name one.

    What it sees of a window's load is `Trial.ran_at`, of the load now `Past.context`, of how often each
    load comes by `Past.loads`.
    """

    plans_by_load: bool
