"""Strict reader of a command's file: the program, its knobs, and its output."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from agents.host.processes.program_runs import RUNS, MeasuredProgram, Runs
from agents.host.service_files import (
    Argv,
    Environment,
    KnobTable,
    Positive,
    PrintedItems,
    PrintedMetric,
    refuse_duplicates,
    refuse_misfits,
)
from tuner.core import ConfigError, Knob, Setting
from tuner.typed_toml import Filled, Table, load

TIMEOUT_S = 3600.0


def _existing(path: Path) -> Path:
    """Return the absolute path of a folder. Raises PydanticCustomError: it is not one."""
    if not (path.is_absolute() and path.is_dir()):
        raise PydanticCustomError("no_folder", "the absolute path of a folder")
    return path


@dataclass(frozen=True, kw_only=True)
class CommandConfig(Table):
    """The content of a command's file.

    Raises:
        InvalidInput: two metrics have one name, knobs contradict each other, or a knob has no effect.
    """

    name: Filled
    version: str = "unknown"
    run: Argv
    env: Environment = field(default_factory=dict)
    folder: Annotated[Path, AfterValidator(_existing)] | None = None
    knob: tuple[KnobTable, ...] = ()
    runs: Runs = RUNS
    timeout_s: Positive = TIMEOUT_S
    items: PrintedItems = field(default_factory=PrintedItems)
    metrics: Annotated[tuple[PrintedMetric, ...], Field(alias="metric")] = ()

    def __post_init__(self) -> None:
        refuse_duplicates(*(metric.name for metric in self.metrics))
        refuse_misfits(self.knobs)
        for knob in self.knobs:
            place = f"{{{knob.name}}}"
            if not any(place in text for text in (*self.run, *self.env.values())):
                raise ConfigError(
                    f"{place} is neither in run nor in env, so the knob {knob.name} has no effect",
                    hint=f"write {place} where the program takes it, as in `--{knob.name} {place}`",
                )

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """The knobs of the program."""
        return tuple(one.knob for one in self.knob)

    def program(self, setting: Setting) -> MeasuredProgram:
        """Return the program at a setting; its environment lists only additions to the agent's own."""
        return MeasuredProgram(
            words=tuple(filled(word, setting) for word in self.run),
            environment={name: filled(text, setting) for name, text in self.env.items()},
            folder=self.folder,
            timeout_s=self.timeout_s,
            items=self.items,
            metrics=self.metrics,
        )


def filled(text: str, setting: Setting) -> str:
    """Return a text with every `{knob}` replaced by its value; other braces stay."""
    for name, value in setting.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        text = text.replace(f"{{{name}}}", shown)
    return text


def load_command_config(path: Path) -> CommandConfig:
    """Read a command's file.

    Raises:
        ConfigError: it cannot be read, does not parse, or is not valid; the message names the file,
            the line, the key, and the nearest valid key.
    """
    return load(path, CommandConfig)
