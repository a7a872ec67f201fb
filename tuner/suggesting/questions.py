"""Messages to the workers of suggestions, and their replies: JSON, exact to the last bit.

A policy may read only the past in its question, so the answer does not depend on the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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


class Tried(BaseModel):
    """The answer to try a setting."""

    model_config = EXACT

    kind: Literal["try"] = "try"
    suggestion: Try


class Waited(BaseModel):
    """The answer to wait."""

    model_config = EXACT

    kind: Literal["wait"] = "wait"
    suggestion: Wait


class Finished(BaseModel):
    """The reply that no more trials are needed."""

    model_config = EXACT

    kind: Literal["done"] = "done"
    suggestion: Done


class NotDecided(BaseModel):
    """The error of a policy: `code` is that of a `TuningError`, empty for any other exception."""

    model_config = EXACT

    kind: Literal["failed"] = "failed"
    code: str
    message: str
    hint: str = ""

    def error(self) -> TuningError:
        """Return the policy's error, as a plain `TuningError` if its code is empty or unknown."""
        return (error_of(self.code) or TuningError)(self.message, hint=self.hint)


Answered = Annotated[Tried | Waited | Finished | NotDecided, Field(discriminator="kind")]


class BatchAnswers(BaseModel):
    """The answers to a question, in the order of its pasts."""

    model_config = EXACT

    answers: tuple[Answered, ...]

    def dumped(self) -> bytes:
        """Return the answers as one line of JSON."""
        return self.model_dump_json().encode()


@dataclass(frozen=True, slots=True)
class Decided:
    """A policy's decision on one past: its suggestion, or its error."""

    suggestion: Suggestion | None
    error: TuningError | None = None


def answer(question: bytes) -> bytes:
    """Return a suggestion for every past of a question; runs in the worker.

    An error of the policy is an answer, too. Each past is decided independently, so no answer depends on
    another past; a policy may cache data that all pasts of one space share.
    """
    batch = BatchQuestion.model_validate_json(question)
    try:
        policy = load_policy(batch.policy)
    except TuningError as error:
        return BatchAnswers(answers=tuple(_failed(error) for _ in batch.pasts)).dumped()
    return BatchAnswers(answers=tuple(_alone(policy, past) for past in batch.pasts)).dumped()


def ask(policy: str, pasts: Sequence[Past]) -> bytes:
    """Return a question as one line of JSON."""
    return BatchQuestion(policy=policy, pasts=tuple(pasts)).model_dump_json().encode()


def read(answers: bytes, count: int) -> list[Decided]:
    """Return the decisions in a worker's answers.

    Raises:
        ValueError: the text is not valid, or has another number of answers than `count`.
    """
    parsed = BatchAnswers.model_validate_json(answers).answers
    if len(parsed) != count:
        raise ValueError(f"{len(parsed)} answers to {count} questions")
    return [
        Decided(None, one.error()) if isinstance(one, NotDecided) else Decided(one.suggestion)
        for one in parsed
    ]


def _alone(policy: Policy, past: Past) -> Tried | Waited | Finished | NotDecided:
    """Return a policy's answer for one past, which is its error if it raises one."""
    try:
        return _answer_of(policy.suggest(past))
    except Exception as error:  # noqa: BLE001  an error of a plug-in is reported to its study
        return _failed(error)


def _answer_of(suggestion: Suggestion) -> Tried | Waited | Finished:
    """Return a suggestion as an answer, its numbers as plain floats that JSON can hold."""
    if isinstance(suggestion, Try):
        plain = {
            n: Prediction(float(p.mean), float(p.sd), p.lognormal)
            for n, p in suggestion.predicted.items()
        }
        context = {name: float(value) for name, value in suggestion.context.items()}
        return Tried(suggestion=Try(dict(suggestion.setting), suggestion.why, plain, context))
    if isinstance(suggestion, Wait):
        return Waited(suggestion=suggestion)
    return Finished(suggestion=suggestion)


def _failed(error: Exception) -> NotDecided:
    """Return an error of a policy as an answer."""
    if isinstance(error, TuningError):
        return NotDecided(code=error.code, message=error.message, hint=error.hint)
    return NotDecided(code="", message=f"{type(error).__name__}: {error}")
