"""Checks of errors in tests: by the code, the named things and the next step, never by the sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tuner.core import Conflict, InvalidInput, NotFound, StoreError, TuningError, Unauthorised

FOR_OPERATORS = (InvalidInput, NotFound, Conflict, Unauthorised, StoreError)
"""Errors on which an operator must act; the program handles the others itself."""
E = TypeVar("E", bound=TuningError)


def has_a_next_step(printed: str) -> bool:
    """Return whether a printed error has a next step: `WHAT IS WRONG; NEXT STEP`."""
    return bool(printed.strip().partition("; ")[2])


@contextmanager
def raised(kind: type[E], *names: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error with the code of `kind` that names `names`, with a next step if one is required."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert error.code == kind.code, f"{error.code}: {error}"
    missing = [str(name) for name in names if str(name) not in str(error)]
    assert not missing, f"not named: {', '.join(missing)}; it says: {error}"
    assert not isinstance(error, FOR_OPERATORS) or has_a_next_step(str(error)), (
        f"no next step: {error}"
    )
