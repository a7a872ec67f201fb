"""Opens the program that a file describes, as a workload: its knobs and the meter of its runs."""

from __future__ import annotations

from pathlib import Path

from agents.host.processes.program_runs import RunMeter
from agents.target.side import Side
from agents.workloads.command.config import CommandConfig, load_command_config
from tuner.core import Clock, InvalidInput, Metric, Scope, Setting, Space


class RunKnobs:
    """The knobs of a program, given to it at each start; nothing else changes, so nothing is restored."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._setting = dict(space.default)

    def read(self) -> Setting:
        """Return the setting of the next run."""
        return dict(self._setting)

    def apply(self, setting: Setting) -> None:
        """Set the knobs of the next runs; knobs that are not named stay.

        Raises:
            UnknownKnob, OutOfRange: the program has no such knob or value.
        """
        self._space.check_named(setting)
        self._setting |= setting


def attach(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Open the program of `command:/PATH/FILE.toml`; nothing runs until it is measured.

    Raises:
        ConfigError: the file cannot be read, or is not valid.
        InvalidInput: the spec has no absolute path.
    """
    file = Path(spec.partition(":")[2])
    if not file.is_absolute():
        raise InvalidInput(f"{spec!r} needs an absolute path", hint="write command:/PATH/FILE.toml")
    config = load_command_config(file)
    space = Space(config.knobs)
    knobs = RunKnobs(space)
    return Side(
        name=config.name,
        kind="command",
        board=config.run[0],
        version=config.version,
        space=space,
        metrics=_metrics(config),
        actuator=knobs,
        meter=RunMeter(lambda: config.program(knobs.read()), config.runs, clock),
        source=f"{config.runs} complete runs of {config.name} per window",
    )


def _metrics(config: CommandConfig) -> tuple[Metric, ...]:
    """Return the metrics of a program's runs."""
    return (
        Metric("latency_ms", scope=Scope.PROCESS),
        Metric("throughput_per_s", scope=Scope.PROCESS),
        Metric("cpu_time_ms", scope=Scope.PROCESS),
        *(one.metric for one in config.metrics),
    )
