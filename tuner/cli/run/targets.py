"""The options of `run` and `observe` that name a target, and the files that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.host.workload import demand_file, under_trace
from tuner.cli.run.llm import LlmRequest, usual_device, write_files
from tuner.cli.run.programs import Program, write_program
from tuner.core import ConfigError

SPECS = "cpu, nvidia:0, nvidia:0+cpu (as one), jetson, simulated:a100"
Workload = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What runs on the device: reference, http://127.0.0.1:PORT, "
        "service:/PATH/FILE.toml, command:/PATH/FILE.toml, or llama_cpp:http://127.0.0.1:PORT.",
    ),
]
Command = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help='A program that runs to an end, measured by whole runs: "train --batch {batch}". No shell '
        "reads it. A file has more options: --workload command:/PATH/FILE.toml.",
    ),
]
Llm = Annotated[
    str,
    typer.Option(
        metavar="[URL]",
        help="A server of a language model on this machine, like http://127.0.0.1:8000: vLLM, SGLang, "
        "llama.cpp, TGI, Ollama, Triton or OpenAI-compatible. Its own traffic is measured.",
    ),
]
GenerateLoad = Annotated[
    str,
    typer.Option(
        metavar="LOAD",
        help="With --llm: send requests, like rate=2,prompt=64-512,output=32-128 (requests/s, "
        "tokens), callers=4, or trace=FILE.csv (arrival_s, prompt_tokens, output_tokens).",
    ),
]
Engine = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- vllm serve MODEL …]",
        help="With --llm without an address: the engine's command. It is started here behind a proxy at "
        "its --port; each --knob is one of its flags, like max_num_seqs=8,16.",
    ),
]
Knobs = Annotated[
    list[str] | None,
    typer.Option(
        "--knob",
        metavar="NAME=V,V",
        help="A knob of --command, or a flag of the engine after --, like batch=8,16,32: the first is the "
        "baseline, or the one after @ (8,16,32@16). With a condition: prefetch=2,4 if workers > 0. "
        "Repeatable.",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME[:less|more]",
        help="A number that --command prints in its last line of JSON, like accuracy:more; "
        "repeatable.",
    ),
]
Runs = Annotated[int | None, typer.Option(help="Runs of --command per window (default 4).")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedTarget:
    """The typed options of a target; empty or None if an option was not given.

    Raises:
        ConfigError: options exclude or need each other.
    """

    device: str = ""
    workload: str = ""
    command: str = ""
    llm: str = ""
    generate_load: str = ""
    knob: Sequence[str] | None = None
    metric: Sequence[str] | None = None
    runs: int | None = None
    load: Path | None = None
    constraint: Sequence[str] | None = None
    seed: int | None = None
    allow_restart: bool = False

    def __post_init__(self) -> None:
        if not self.command and (self.knob or self.metric or self.runs is not None):
            raise ConfigError(
                "--knob, --metric and --runs need --command", hint="give --command, too"
            )
        if sum(map(bool, (self.command, self.llm, self.workload))) > 1:
            raise ConfigError(
                "--command, --llm, --workload exclude each other", hint="give one of them"
            )
        if self.generate_load and not self.llm:
            raise ConfigError("--generate-load needs --llm", hint="give --llm URL, too")

    @property
    def server(self) -> LlmRequest | None:
        """The request for a model server; None without --llm."""
        device = self.device or usual_device()
        of = self.llm, device, self.generate_load, self.constraint or (), self.seed or 0
        return LlmRequest(*of, self.allow_restart) if self.llm else None

    def written(self, state_dir: Path) -> tuple[str, str]:
        """Write the files that the options stand for; return the specs of the device and the workload.

        Raises InvalidInput, ConfigError, DeviceLost and ActuationError as the options' parts do.
        """
        device, workload = self.device, self.workload
        if self.command:
            program = Program(self.command, self.knob or (), self.metric or (), self.runs)
            device, workload = device or "cpu", write_program(program, state_dir)
        if (server := self.server) is not None:
            device, workload = server.device, write_files(server, state_dir).workload
        workload = under_trace(workload, self.load)
        demand_file(workload)
        return device, workload
