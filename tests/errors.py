"""How a test looks at an error: by its code, what it names and its next step; never by its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tuner.core import Conflict, InvalidInput, NotFound, StoreError, TuningError, Unauthorised

FOR_OPERATORS = (InvalidInput, NotFound, Conflict, Unauthorised, StoreError)
"""What somebody has to act upon; what the rest of the family asks for, the program does itself."""
E = TypeVar("E", bound=TuningError)


def has_a_next_step(printed: str) -> bool:
    """Return whether a printed error says what to do: `WHAT IS WRONG; NEXT STEP`."""
    return bool(printed.strip().partition("; ")[2])


@contextmanager
def raised(kind: type[E], *names: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error with the code of `kind` that names `names`, with a next step where one is due."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert error.code == kind.code, f"{error.code}: {error}"
    missing = [str(name) for name in names if str(name) not in str(error)]
    assert not missing, f"not named: {', '.join(missing)}; it says: {error}"
    assert not isinstance(error, FOR_OPERATORS) or has_a_next_step(str(error)), (
        f"no next step: {error}"
    )
