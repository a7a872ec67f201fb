"""Objects that are selected by name: built in, or an entry point of another installed package.

Source: the Python Packaging User Guide, "Entry points specification".
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tuner.errors import InvalidInput

BENCH = "jouletune_bench"
"""The distribution with the devices of a checkout's benches: `tests/bench`."""


def names(group: str, builtin: Mapping[str, str]) -> list[str]:
    """Return the names that can be selected in a group, built-in ones first."""
    return [*builtin, *sorted({entry.name for entry in entry_points(group=group)} - {*builtin})]


def load(group: str, builtin: Mapping[str, str], name: str) -> Any:  # noqa: ANN401
    """Return the object with a name; None if no object has it.

    `builtin` gives `module:attribute` by name. Only the selected module is imported.

    Raises:
        InvalidInput: the name is provided twice, or its package cannot be imported.
    """
    entries = list(entry_points(group=group, name=name))
    offered = [f"{name} = {builtin[name]}, which is built in"] if name in builtin else []
    offered += [_described(entry) for entry in entries]
    if len(offered) > 1:
        raise InvalidInput(
            f"{name!r} of {group} is provided twice: {'; '.join(offered)}",
            hint="uninstall one of the packages, or change the name in one",
        )
    if entries:
        return _imported(entries[0])
    if name not in builtin:
        return None
    module, _, attribute = builtin[name].partition(":")
    return getattr(import_module(module), attribute)


def only_in_a_checkout(name: str) -> InvalidInput:
    """Return the error for a name that only the distribution `BENCH` of a checkout provides."""
    return InvalidInput(
        f"{name!r} needs the package {BENCH}, which is not installed",
        hint="it is in a checkout of jouletune, below tests/bench, and not in the wheel or the Debian "
        "packages: run `pip install -e tests/bench` there",
    )


def _imported(entry: EntryPoint) -> Any:  # noqa: ANN401
    """Return the object of an entry point. Raises InvalidInput: its package cannot be imported."""
    try:
        return entry.load()
    except Exception as error:
        raise InvalidInput(
            f"cannot load {_described(entry)}: {type(error).__name__}: {error}",
            hint="repair that package, or uninstall it",
        ) from error


def _described(entry: EntryPoint) -> str:
    """Return an entry point and its package, in words."""
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package"
    return f"{entry.name} = {entry.value}, of the package {package}"
