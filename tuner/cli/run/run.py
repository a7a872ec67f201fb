"""`jouletune run`: tune this machine with a tuner and an agent as local processes, and report."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from agents.host.machine import HostClock
from tuner import files
from tuner.cli.answers import Answer, checked, show
from tuner.cli.asking import place, reached
from tuner.cli.host import logs
from tuner.cli.options import (
    STATE_DIR,
    AsJson,
    Constraints,
    ForeignShare,
    LoadTrace,
    NoConstraint,
    RunSafetyName,
    TokenFile,
    option,
    user_name,
    wished,
    without_password,
)
from tuner.cli.output import console, echo_json, plain
from tuner.cli.run.conduct import Keeper, NoFreeKnob, conduct, drop_leftovers
from tuner.cli.run.display import Display, Lines, open_display
from tuner.cli.run.jobs import Wishes, demand_consent, requested_jobs
from tuner.cli.run.llm import LlmRequest, demand_traffic, examine, write_files
from tuner.cli.run.observe import lines, look
from tuner.cli.run.processes import StartedEngine, demand_engine, proxy_words, served
from tuner.cli.run.programs import finished_command
from tuner.cli.run.results import Result, document
from tuner.cli.run.summary import next_steps, print_report, summary, write_page
from tuner.cli.run.targets import (
    Command,
    Engine,
    GenerateLoad,
    Knobs,
    Llm,
    Metrics,
    Runs,
    TypedTarget,
    Workload,
)
from tuner.cli.runfile import RunJob, RunRecord, read_run, write_run
from tuner.cli.study.report import refuse_untuned
from tuner.core import ConfigError, NotFound, Safety, StoreError, TuningError

RESUMES = "give only --state-dir, --keep and --json"


def run(
    device: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="cpu, nvidia:0, nvidia:0+cpu (tuned as one), jetson, simulated:a100, in a checkout "
            "replay:FILE.csv[#SURFACE]; without it, the simulated board orin and then the reference "
            "workload on this machine.",
        ),
    ] = "",
    workload: Workload = "",
    command: Command = "",
    llm: Llm = "",
    generate_load: GenerateLoad = "",
    allow_restart: Annotated[
        bool,
        typer.Option(
            "--allow-restart",
            help="With --llm or a unit:NAME.service in --device: also tune what restarts the server.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="With --llm: list what would be measured and set; change no setting."
        ),
    ] = False,
    write_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="With --llm: write the file for the agent's --workload service:FILE.toml, and stop.",
        ),
    ] = None,
    knob: Knobs = None,
    metric: Metrics = None,
    runs: Runs = None,
    policy: Annotated[str, option("policy", "Default: polythrottle.")] = "",
    objective: Annotated[str, option("objective")] = "",
    constraint: Constraints = None,
    no_constraint: NoConstraint = False,
    trials: Annotated[int | None, option("trials")] = None,
    window_s: Annotated[float | None, option("window_s")] = None,
    db: Annotated[
        str,
        typer.Option(
            metavar="URL",
            callback=without_password,
            help="Database URL (default: SQLite in the state folder).",
        ),
    ] = "",
    safety: Annotated[
        RunSafetyName | None, typer.Option(help="Safety margin to the limits (balanced).")
    ] = None,
    load: LoadTrace = None,
    foreign_share: ForeignShare = None,
    seed: Annotated[int | None, option("seed", "Default: 0.")] = None,
    transfer: Annotated[bool, option("transfer")] = True,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Let the services of --tuner confirm and hold "
            "the result; their agent must have the device.",
        ),
    ] = False,
    tuner: Annotated[
        str,
        typer.Option(
            metavar="URL", help="With --keep: the services' tuner (default $JOULETUNE_TUNER)."
        ),
    ] = "",
    token_file: TokenFile = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted run of the state folder.")
    ] = False,
    state_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the database, token and logs.")
    ] = STATE_DIR,
    as_json: AsJson = False,
    engine: Engine = None,
) -> None:
    """Tune this machine and report the saving.

    Starts a tuner and an agent as local processes and ends them afterwards. The device is restored; only
    --keep holds the result. Exits with 1 if nothing could be tuned. A target without a knob is observed.
    """
    if (tuner or token_file) and not keep:
        raise ConfigError("--tuner and --token-file need --keep", hint="give --keep, or neither")
    if keep and not (device or command or resume):
        raise ConfigError("--keep needs a device", hint="give --device, too")
    if resume and (command or llm or workload):
        raise ConfigError("--resume excludes --command, --llm and --workload", hint=RESUMES)
    if (check or write_config) and not llm:
        raise ConfigError("--check and --write-config need --llm", hint="give --llm URL, too")
    demand_engine(llm, engine or (), resume=resume, write_config=bool(write_config))
    typed = TypedTarget(
        device=device,
        workload=workload,
        command=command,
        llm=llm,
        generate_load=generate_load,
        knob=None if engine else knob,
        metric=metric,
        runs=runs,
        load=load,
        constraint=constraint,
        seed=seed,
        allow_restart=allow_restart or bool(engine),
    )
    demand_consent(device, restart=allow_restart, llm=bool(llm))
    wishes = Wishes(
        device=device,
        workload=workload,
        policy=policy,
        objective=objective,
        constraints=wished(constraint, no_constraint),
        trials=trials,
        window_s=window_s,
        seed=seed,
        safety=None if safety is None else Safety(safety),
        foreign_share=foreign_share,
        transfer=transfer,
        allow_restart=allow_restart or not llm or bool(engine),
    )
    if resume and (db or wishes != Wishes()):
        raise ConfigError(
            "--resume continues the run with its own options",
            hint=RESUMES,
        )
    with _one_interrupt(), ExitStack() as stack:
        started, words = None, proxy_words(engine or (), knob or ())
        if engine and typed.server is not None:
            # Refused here, not after minutes in which the engine loads its model.
            _ = requested_jobs(replace(wishes, device=typed.server.device)), typed.server.load
            stack.enter_context(files.lock(state_dir, "run", 0o700))
            started = stack.enter_context(served(words, state_dir))
            typed, words = replace(typed, llm=started.url), started.words
        if typed.server is not None and (check or write_config):
            return _describe(typed.server, write_config, as_json)
        device, workload = typed.written(state_dir)
        wishes = replace(wishes, device=device, workload=workload)
        requested = None if resume else _requested_run(wishes, db, state_dir, words)
        if llm and not generate_load:
            demand_traffic(workload, HostClock())
        if not engine:
            stack.enter_context(files.lock(state_dir, "run", 0o700))
        keeper = stack.enter_context(_keeper(tuner, token_file)) if keep else None
        record = _unfinished(state_dir) if requested is None else requested
        if keeper is not None:
            keeper.check(record.jobs[-1])
        if requested is not None:
            _begin(requested, state_dir)
        if record.engine and started is None:
            started = stack.enter_context(served(record.engine, state_dir))
        try:
            _carry_out(record, state_dir, as_json, keeper, started)
        except NoFreeKnob as error:
            if keeper is not None:
                raise
            _observe(record.jobs[-1], str(error), as_json)


def _observe(job: RunJob, why: str, as_json: bool) -> None:
    """Measure a target that has no knob to try, and print the observation."""
    typer.echo(f"{why}. Nothing can be tuned, so it is observed:", err=as_json)
    with TemporaryDirectory(prefix="jouletune-") as folder:
        seen = look(job.device, job.workload, Path(folder), 0.0, job.window_s, job.seed)
    show(Answer(seen, lines(seen)), "json" if as_json else "table")


def _describe(request: LlmRequest, file: Path | None, as_json: bool) -> None:
    """Write the configuration of a model server, or list its metrics and knobs."""
    if file is not None:
        written = write_files(request, file.absolute().parent, file.name)
        lines = [
            f"wrote {written.file}",
            f"next: `jouletune workload check {written.file}`, then in agent.toml: "
            f'workload = "{written.workload}"',
        ]
        value: object = {"file": str(written.file), "workload": written.workload}
    else:
        findings = list(examine(request))
        lines = list(checked(findings, otherwise="missing"))
        value = {"findings": findings}
    show(Answer(value, lines), "json" if as_json else "table")


@contextmanager
def _keeper(tuner: str, token_file: Path | None) -> Iterator[Keeper]:
    """Open the services that will hold the result. Raises ConfigError: no tuner is named."""
    where = place(tuner, token_file, "", last_run=False)
    if not where.tuner:
        raise ConfigError(
            "--keep needs the tuner of the services",
            hint="give --tuner http://127.0.0.1:8790 --token-file FILE",
        )
    with reached(where) as services:
        yield Keeper(services, where.tuner, user_name())


def _requested_run(wishes: Wishes, db: str, state_dir: Path, engine: Sequence[str]) -> RunRecord:
    """Return the record of the run that the flags request."""
    url = db or f"sqlite:///{state_dir / 'jouletune.sqlite'}"
    return RunRecord(
        db=url,
        seed=wishes.seed or 0,
        foreign_share=wishes.foreign_share,
        engine=tuple(engine),
        jobs=requested_jobs(wishes),
    )


def _begin(record: RunRecord, state_dir: Path) -> None:
    """Stop the studies of an interrupted run, and write the record of the new one."""
    last = read_run(state_dir)
    if last is not None:
        drop_leftovers(last, lambda text: typer.echo(text, err=True))
    write_run(state_dir, record)


def _unfinished(state_dir: Path) -> RunRecord:
    """Return the record of the run to continue. Raises NotFound: no run is unfinished."""
    last = read_run(state_dir)
    if last is None or last.finished:
        reason = "the last run is complete" if last else "there was no run"
        raise NotFound(
            f"nothing to resume in {state_dir}: {reason}", hint="start one with `jouletune run`"
        )
    return last


class Interrupted(TuningError, code="interrupted"):
    """The operator ended the run. Continue as its hint says."""


def _carry_out(
    record: RunRecord,
    state_dir: Path,
    as_json: bool,
    keeper: Keeper | None,
    engine: StartedEngine | None,
) -> None:
    """Carry out the run and report it, with the unavailable metrics and knobs."""
    handler = logging.FileHandler(state_dir / "run.log", delay=True)
    handler.setFormatter(logs.PlainLines("%(asctime)s %(message)s"))
    logging.basicConfig(handlers=[handler])
    progress = console(stderr=as_json)
    display = Lines(progress) if as_json else open_display(progress)
    finished: list[Result] = []

    def done(result: Result) -> None:
        finished.append(result)
        if not as_json:
            display.close()
            print_report(progress, result)

    try:
        conduct(record, state_dir, user_name(), display, done, engine)
    except KeyboardInterrupt:
        where = "" if state_dir == STATE_DIR else f" --state-dir {state_dir}"
        raise Interrupted(
            "interrupted: the device is restored and every trial is stored",
            hint=f"continue with `jouletune run --resume{where}`",
        ) from None
    finally:
        display.close()
    try:
        if keeper is not None:
            _keep(keeper, finished, display, progress)
    finally:
        if as_json:
            documents = [document(result) for result in finished]
            if keeper is not None:
                documents[-1]["kept"] = plain(keeper.kept)
            echo_json(documents[0] if len(documents) == 1 else {"studies": documents})
    if not as_json:
        _conclude(finished, record, state_dir, progress, "" if keeper is None else keeper.where)
        for result in finished:
            if result.main.tuned and (line := _finished_command(result, engine)):
                progress.print(f"\n{line}", soft_wrap=True)
    for result in finished:
        refuse_untuned(result.main, f" --db {record.db}")


def _conclude(
    finished: Sequence[Result], record: RunRecord, state_dir: Path, progress: Console, keeps: str
) -> None:
    """Print the summary and further commands; write the report page if its packages are installed."""
    reach = "" if state_dir == STATE_DIR else f" --db {record.db}"
    page = None
    try:
        page = write_page(finished, state_dir, datetime.now(timezone.utc)) if finished else None
    except (ConfigError, StoreError) as error:
        progress.print(f"no report page: {error}", soft_wrap=True)
    progress.print("\nSummary:", style="bold")
    for label, text in summary(finished, page, reach, keeps):
        progress.print(f"  {label:<8}{text}", soft_wrap=True)
    progress.print("\nMore:", style="bold")
    for command in next_steps(finished, reach):
        progress.print(f"  {command}", soft_wrap=True)


def _finished_command(result: Result, engine: StartedEngine | None) -> str:
    """Return the command of a program or engine with its held values; empty for another workload."""
    held = result.main.held
    if engine is not None:
        return engine.finished_command(held)
    return finished_command(result.job.workload, held)


def _keep(keeper: Keeper, finished: Sequence[Result], display: Display, progress: Console) -> None:
    """Request the services to hold the run's result. Raises TuningError with the study's state."""
    try:
        keeper.keep(finished[-1], display)
    except KeyboardInterrupt:
        study = "nothing" if keeper.kept is None else f"study {keeper.kept.id}"
        raise Interrupted(
            f"interrupted; the services at {keeper.where} continue with {study}",
            hint=f"watch it with `jouletune study list --tuner {keeper.where}`",
        ) from None
    finally:
        display.close()
    for text in keeper.outcome_lines():
        progress.print(f"  {text}", soft_wrap=True)


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """End the run at the first Ctrl-C or SIGTERM, and ignore further ones during the restore."""

    def interrupt(_number: int, _frame: object) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
