"""Messages to the workers of suggestions, and their replies: JSON, exact to the last bit.

A policy may read only the past in its question, so the answer does not depend on the worker.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from policies import load_policy
from tuner.core import (
    Done,
    Past,
    Policy,
    Prediction,
    Suggestion,
    Try,
    TuningError,
    Wait,
    error_of,
)

EXACT = ConfigDict(ser_json_inf_nan="strings", frozen=True)


class BatchQuestion(BaseModel):
    """The pasts for which one policy is to suggest a step each."""

    model_config = EXACT

    policy: str
    pasts: tuple[Past, ...]


class Decided(BaseModel):
    """A policy's decision on one past: its suggestion, or its error.

    `code` is that of a `TuningError`, empty for any other exception.
    """

    model_config = EXACT

    tries: Try | None = None
    waits: Wait | None = None
    ends: Done | None = None
    code: str = ""
    message: str = ""
    hint: str = ""

    def suggestion(self) -> Suggestion:
        """Return the suggestion. Raises the policy's error, as a `TuningError` if its code is unknown."""
        suggestion = self.tries or self.waits or self.ends
        if suggestion is None:
            raise (error_of(self.code) or TuningError)(self.message, hint=self.hint)
        return suggestion


class BatchAnswers(BaseModel):
    """The decisions on a question, in the order of its pasts."""

    model_config = EXACT

    answers: tuple[Decided, ...]


def answer(question: bytes) -> bytes:
    """Return a suggestion for every past of a question; runs in the worker.

    An error of the policy is an answer, too. Each past is decided independently, so no answer depends on
    another past; a policy may cache data that all pasts of one space share.
    """
    batch = BatchQuestion.model_validate_json(question)
    try:
        policy = load_policy(batch.policy)
        answers = tuple(_alone(policy, past) for past in batch.pasts)
    except TuningError as error:
        answers = (failed(error),) * len(batch.pasts)
    return BatchAnswers(answers=answers).model_dump_json().encode()


def ask(policy: str, pasts: Sequence[Past]) -> bytes:
    """Return a question as one line of JSON."""
    return BatchQuestion(policy=policy, pasts=tuple(pasts)).model_dump_json().encode()


def read(answers: bytes, count: int) -> tuple[Decided, ...]:
    """Return the decisions in a worker's answers.

    Raises:
        ValueError: the text is not valid, or has another number of answers than `count`.
    """
    parsed = BatchAnswers.model_validate_json(answers).answers
    if len(parsed) != count:
        raise ValueError(f"{len(parsed)} answers to {count} questions")
    return parsed


def failed(error: Exception) -> Decided:
    """Return an error as the decision on a past."""
    if isinstance(error, TuningError):
        return Decided(code=error.code, message=error.message, hint=error.hint)
    return Decided(message=f"{type(error).__name__}: {error}")


def _alone(policy: Policy, past: Past) -> Decided:
    """Return a policy's decision on one past, its numbers as plain floats that JSON can hold."""
    try:
        suggestion = policy.suggest(past)
    except Exception as error:  # noqa: BLE001  an error of a plug-in is reported to its study
        return failed(error)
    if isinstance(suggestion, Wait):
        return Decided(waits=suggestion)
    if isinstance(suggestion, Done):
        return Decided(ends=suggestion)
    plain = {
        n: Prediction(float(p.mean), float(p.sd), p.lognormal)
        for n, p in suggestion.predicted.items()
    }
    context = {name: float(value) for name, value in suggestion.context.items()}
    return Decided(tries=Try(dict(suggestion.setting), suggestion.why, plain, context))
