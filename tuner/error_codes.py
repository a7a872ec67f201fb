"""The errors of the family by their codes, which are what a wire carries."""

from tuner.errors import TuningError


def error_of(code: str) -> type[TuningError] | None:
    """Return the error that has a code on the wire, the widest of those; None for a foreign code."""
    family: list[type[TuningError]] = [TuningError]
    for kind in family:
        if kind.code == code:
            return kind
        family += kind.__subclasses__()
    return None
