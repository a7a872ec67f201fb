"""Installed distributions: the running release, and objects that other packages provide by name.

Source: the Python Packaging User Guide, "Entry points specification".
"""

import json
import subprocess
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import (
    EntryPoint,
    PackageNotFoundError,
    distribution,
    entry_points,
    packages_distributions,
)
from pathlib import Path
from typing import Any

from tuner.errors import ConfigError, InvalidInput

BENCH = "jouletune_bench"
"""The distribution with the devices of a checkout's benches: `tests/bench`."""
DISTRIBUTION = "jouletune"
PACKAGES = ("agents", "db", "policies", "tuner")
COMMIT = Path(__file__).with_name("commit.txt")
"""A file that `make wheel` and install.sh write; a checkout does not have it."""


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


def check_names() -> None:
    """Raise ConfigError if another installed distribution has a package with one of our names.

    Both install into one folder, file over file, so an import would load a mixture of the two.
    """
    owners = packages_distributions()
    for package in PACKAGES:
        for other in sorted({*owners.get(package, ())} - {DISTRIBUTION}):
            raise ConfigError(
                f"the Python package `{package}` also belongs to the distribution {other}",
                hint=f"install {DISTRIBUTION} into a separate environment, without {other}",
            )


def version() -> str:
    """Return the installed version."""
    return distribution(DISTRIBUTION).version


def commit() -> str:
    """Return the commit from which this release was built; empty if it is unknown."""
    if COMMIT.is_file():
        return COMMIT.read_text(encoding="utf-8").strip()
    return _of_checkout(Path(__file__).parents[1]) or _of_install()


def _of_checkout(top: Path) -> str:
    """Return the commit of a checkout, with `-dirty` if files differ from it; empty if git fails."""
    if not (top / ".git").exists():
        return ""
    command = [
        "git",
        "-C",
        str(top),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10.0)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _of_install() -> str:
    """Return the commit that pip records when it installs from a repository (PEP 610); empty if none."""
    try:
        noted = distribution(DISTRIBUTION).read_text("direct_url.json") or "{}"
    except PackageNotFoundError:
        return ""
    commit_id = json.loads(noted).get("vcs_info", {}).get("commit_id", "")
    return str(commit_id)[:12]
