"""Variants of a tuner: the same policy with other options, or without one of its rules."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench.contest.score import OURS
from tests.bench.contest.tuners import TUNERS, Tuner
from tuner.core import ConfigError, Safety
from tuner.toml import checked

KEYS = {"policy": str, "safety": str, "without": list, "options": dict}


def load_variants(path: Path) -> Mapping[str, Tuner]:
    """Read a TOML file of variants by their names.

    Each table may have `policy` (default: polythrottle), `safety` (balanced), `without`, a list of the
    policy's rules to leave out, and `options`, keywords of the policy's class.

    Raises:
        ConfigError: the file cannot be read, names nothing, or a key or a value does not fit.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="name another") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    if not tables:
        raise ConfigError(f"{path} names no variant", hint="write a table for each: [bolder]")
    return {name: _variant(f"{path}, {name}", name, table) for name, table in tables.items()}


def without_each(rules: Sequence[str]) -> Mapping[str, Tuner]:
    """Return our tuner without each of some rules, one at a time."""
    ours = TUNERS[OURS]
    return {f"{OURS}-without-{rule}": replace(ours, without=frozenset({rule})) for rule in rules}


def _variant(where: str, name: str, table: object) -> Tuner:
    if name in TUNERS:
        raise ConfigError(
            f"{where}: a tuner of that name is there already", hint="name it otherwise"
        )
    entry = checked(where, table, KEYS)
    safety, rules = entry.get("safety", Safety.BALANCED), entry.get("without", [])
    if safety not in list(Safety):
        raise ConfigError(
            f"{where}: safety cannot be {safety!r}", hint=f"choose among {', '.join(Safety)}"
        )
    if not all(isinstance(rule, str) for rule in rules):
        raise ConfigError(f"{where}: without must be a list of names, not {rules!r}")
    return Tuner(
        entry.get("policy", TUNERS[OURS].policy),
        Safety(safety),
        options=entry.get("options", {}),
        without=frozenset(rules),
    )
