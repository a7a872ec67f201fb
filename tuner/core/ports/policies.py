"""The port of policies: one function, and five optional declarations."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tuner.core.decisions import Past, Suggestion
from tuner.core.studies import Study

__all__ = [
    "DecidesSteps",
    "ExploresApart",
    "FollowsLoad",
    "Policy",
    "RefusesStudies",
    "SaysWhatItHeeds",
]


class Policy(Protocol):
    """Decides a study's steps by a pure function: the same past gives the same suggestion at any time."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the next step: try a setting, wait, or be done with a plan."""


@runtime_checkable
class SaysWhatItHeeds(Protocol):
    """A policy that declares the parts of a study that it supports: `objective`, `constraints`, `safety`.

    A policy without this declaration supports the first two. To support `safety` a policy must predict the
    metrics of the settings that it tries. A study that requires an unsupported part is refused when it is
    created.
    """

    heeds: frozenset[str]


@runtime_checkable
class RefusesStudies(Protocol):
    """A policy that supports a part of a study in some forms only, and refuses the others."""

    def refuse(self, study: Study) -> None:
        """Check that the policy supports a study. Raises InvalidInput: names the unsupported part."""


@runtime_checkable
class DecidesSteps(Protocol):
    """A policy of continuous studies that judges steps by itself.

    If `needs_baseline` is false the baseline is measured only for limits that are relative to it. `goals`
    are metrics whose constraints apply to the whole course of the study and end it once they are met; no
    single setting is judged by them.
    """

    needs_baseline: bool
    goals: frozenset[str]


@runtime_checkable
class ExploresApart(Protocol):
    """A policy that can suggest while trials run, so that similar devices may each run their own trial.

    Running trials are in its past, without a measurement. It does not suggest their settings again, and its
    suggestions must be safe even if their results are never reported.
    """

    explores_apart: bool


@runtime_checkable
class FollowsLoad(Protocol):
    """A policy that proposes one setting, so that a study may follow a load: see `Terms.plan_by`."""

    follows_load: bool
