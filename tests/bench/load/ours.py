"""What this program does: a study on the first half of a trace, its plan followed by the agent's runner."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from agents.holding.holder import Holder
from agents.holding.journal import Journal
from agents.holding.plan_runner import PlanRunner
from agents.host.host import Host
from agents.target.measure import Measurer
from agents.target.observe import Ask
from agents.target.target import Target
from agents.target.window import Usage
from jouletune_bench.llm import Request, ServedRequest, ServesRequests, attach
from jouletune_bench.llm.requests import repeated
from policies import load_policy
from tests.bench.load.servers import Limits, Opener
from tuner.core import (
    Constraint,
    LoadHistory,
    Objective,
    Past,
    Phase,
    Plan,
    Policy,
    Study,
    Terms,
    Trial,
    load_band,
    weigh,
)
from tuner.study.assignments import longest_window_s
from tuner.study.follow import Spent, why_grow
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move, Rest, needed_metrics
from tuner.wire import HoldOrder

BY = "arrival_rate_per_s"
TUNED_S = 24 * 3600.0
"""No study takes longer, on the first half of a trace repeated."""
TRIALS = 40
"""Half as many again as a server has clocks, for all loads. Ours."""
WINDOW_S = 60.0
REST_S = 60.0
"""Between two questions of a study that waits for a load."""
SETTLED_S = 4 * 3600.0
"""A study that has held one plan for so long has seen every load of a repeated half hour."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long windows and rests of a study are, in seconds, how long all of it is, and how many trials."""

    window_s: float = WINDOW_S
    max_window_s: float = 0.0
    rest_s: float = REST_S
    tuned_s: float = TUNED_S
    settled_s: float = SETTLED_S
    trials: int = TRIALS


SIMULATED = Pace()


@dataclass(frozen=True, slots=True)
class Tuned:
    """The plan that a study came to, after so many trials and hours of the server's time, and why."""

    plan: Plan
    trials: int
    hours: float
    phase: str
    reason: str


class Follows:
    """The agent's plan runner over the agent's holder, on the server's own time."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        """Hold that plan, and keep each hold in a new folder of that one."""
        self._plan, self._folder = plan, folder
        self._runner: PlanRunner | None = None

    @property
    def tick_s(self) -> float:
        """As often as the runner itself looks."""
        return 1.0 if self._runner is None else self._runner.tick_s

    def begin(self, server: ServesRequests) -> None:
        """Take the hold up."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        target = Target((attach(server, "server", "simulated"),))
        holder = _holder(target, server, folder)
        holder.take(_order(self._plan, target))
        self._runner = PlanRunner("server", target, holder, server, lambda: NOW)

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Let the runner look once."""
        if self._runner is not None:
            self._runner.tick()


def _holder(target: Target, server: ServesRequests, folder: Path) -> Holder:
    return Holder(
        "server",
        target,
        folder=folder / "holds",
        journal=Journal(folder / "journal"),
        attached={"spec": "server"},
        host=Host("bench", "boot", 1),
        clock=server,
        now=lambda: NOW,
    )


def _order(plan: Plan, target: Target) -> HoldOrder:
    return HoldOrder(
        study="load",
        revision=1,
        plan=plan,
        baseline=target.space.default,
        limits=((),) * len(plan.rows),
        metrics=("energy_j",),
        valid_for_s=30 * 86_400.0,
        observe_s=3600.0,
        window_s=WINDOW_S,
    )


def tune(open_server: Opener, requests: Sequence[Request], kept: Limits, seed: int) -> Tuned:
    """Run one study on requests repeated without end, and return its plan.

    It has settled once it held one plan for the whole of them.
    """
    server = open_server(list(repeated(requests, _turns(requests))), seed)
    pace = replace(SIMULATED, settled_s=max(SETTLED_S, requests[-1].arrival_s))
    return tune_on(server, kept, seed, pace)


def tune_on(
    server: ServesRequests, kept: Limits, seed: int, pace: Pace = SIMULATED, by: str = BY
) -> Tuned:
    """Run one study on a server, and return the plan that it held last; without `by` of one setting."""
    target = Target((attach(server, "server", "simulated"),))
    study = _study(target, kept, seed, pace, by)
    bench = Measurer(
        target=target,
        host_clock=server,
        now=lambda: NOW,
        usage=Usage(1, lambda: 0.0),
        seed=str(seed),
    )
    policy, loads = load_policy("polythrottle"), _Loads(server)
    growth = _Growth(policy)
    trials: list[Trial] = []
    changed_s = 0.0
    held: Study | None = None
    while server.monotonic() < pace.tuned_s and study.phase is not Phase.PAUSED:
        past = Past(study=study, trials=tuple(trials), context=loads.context, loads=loads.history)
        step = next_step(past, policy)
        if not isinstance(step, Rest):
            changed_s = server.monotonic()
        if isinstance(step, Move):
            moved = study.moved(step.phase, step.plan)
            study = replace(moved, phase_since=len(trials) + 1, reason=step.why)
            held = study if study.phase is Phase.HOLDING else held
        elif isinstance(step, Assign):
            trials.append(_measured(study, trials, step, bench))
            target.apply(study.baseline)
        elif by and study.phase is Phase.HOLDING and (why := growth.why(past)):
            study = replace(study.moved(Phase.TUNING), phase_since=len(trials) + 1, reason=why)
            changed_s = server.monotonic()
        else:
            if study.held is not None:
                target.apply(study.held.rows[study.held.row(loads.context)].setting)
            server.sleep(pace.rest_s)
            server.take()
        held_s = server.monotonic() - changed_s
        if study.phase is Phase.HOLDING and isinstance(step, Rest) and held_s > pace.settled_s:
            break
        loads.look()
    last = study if held is None or study.phase is Phase.PAUSED else held
    plan = last.plan if last.phase is Phase.HOLDING and last.plan else Plan.single(study.baseline)
    return Tuned(plan, len(trials), changed_s / 3600.0, str(last.phase), last.reason)


def _turns(requests: Sequence[Request]) -> int:
    return int(1.5 * TUNED_S / max(1.0, requests[-1].arrival_s)) + 1


def _study(target: Target, kept: Limits, seed: int, pace: Pace, by: str = BY) -> Study:
    return Study(
        id="load",
        devices=(target.name,),
        workload=target.name,
        space=target.space,
        objective=Objective("energy_j"),
        quantities=target.quantities,
        signals=tuple(live.signal for live in target.signals.values()),
        constraints=(
            Constraint.parse(f"time_to_first_token_p99_ms <= {1000.0 * kept.ttft_s:.6g}"),
            Constraint.parse(f"inter_token_p99_ms <= {1000.0 * kept.tpot_s:.6g}"),
        ),
        policy="polythrottle",
        seed=seed,
        terms=Terms(
            trials=pace.trials,
            window_s=pace.window_s,
            max_window_s=pace.max_window_s,
            plan_by=by,
        ),
        created_at=NOW,
    )


class _Growth:
    """Whether a held plan is to grow: as the tuner does, asked once for each band of load and trial."""

    def __init__(self, policy: Policy) -> None:
        self._policy = Spent(policy)
        self._known: dict[tuple[int, int], str] = {}

    def why(self, past: Past) -> str:
        key = (len(past.trials), load_band(past.context.get(BY, 0.0)))
        if key not in self._known:
            self._known[key] = why_grow(past, self._policy)
        return self._known[key]


class _Loads:
    """The load that the tuner knows of: the last look's, and for how long each was seen."""

    def __init__(self, server: ServesRequests) -> None:
        self._server = server
        self._last = server.counters()
        self._seen: list[tuple[float, float]] = []

    def look(self) -> None:
        now, last = self._server.counters(), self._last
        seconds = now.now_s - last.now_s
        if seconds >= 1.0:
            self._seen.append(((now.arrived - last.arrived) / seconds, seconds))
            self._last = now

    @property
    def context(self) -> dict[str, float]:
        return {BY: self._seen[-1][0]} if self._seen else {}

    @property
    def history(self) -> LoadHistory:
        return LoadHistory.of(self._seen)


def _measured(study: Study, trials: Sequence[Trial], step: Assign, bench: Measurer) -> Trial:
    begun = Trial(
        number=len(trials) + 1,
        setting=step.setting,
        phase=study.phase,
        started_at=NOW,
        why=step.why,
        context=step.context,
    )
    ask = Ask(
        metrics=needed_metrics(study),
        limits=() if begun.tries(study.baseline) else weigh(study, trials).limits or (),
        window_s=study.terms.window_s,
        max_window_s=longest_window_s(study, trials),
        follows=BY,
    )
    return begun.ended(bench.trial(step.setting, ask, lambda: None, f"trial {begun.number}"), NOW)
