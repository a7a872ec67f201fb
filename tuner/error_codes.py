"""The errors of the family by their codes, which are sent between machines."""

from tuner.errors import TuningError


def error_of(code: str) -> type[TuningError] | None:
    """Return the most general error with a code; None for a code that is not ours."""
    family: list[type[TuningError]] = [TuningError]
    for kind in family:
        if kind.code == code:
            return kind
        family += kind.__subclasses__()
    return None
