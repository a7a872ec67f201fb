"""Write a bench's figures into the page that has its section: `figures.py NAME RESULT.json [PAGE.md]`.

A bench owns what lies between its two markers, `<!-- figures: NAME -->` and `<!-- end: NAME -->`; all else
on the page stays. What was measured, where and when is in the result (`tests/bench/result.py`).
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

DOCS = Path(__file__).parent
PAGE = DOCS / "figures.md"
Told = Any
Name = TypeVar("Name", str, int, float)


def main(name: str, result: Path, page: Path | None = None) -> None:
    """Replace the section of a bench by what its result says. Exits where there is no such section."""
    page = page or next(
        (p for p in sorted(DOCS.rglob("*.md")) if f"<!-- figures: {name} -->" in p.read_text()),
        PAGE,
    )
    section = re.compile(rf"(<!-- figures: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    if name not in SECTIONS or not section.search(text):
        sys.exit(f"{page} has no section for {name!r}; there are: {', '.join(sorted(SECTIONS))}")
    told = json.loads(result.read_text(encoding="utf-8"))
    if "measured" not in told:
        sys.exit(f"{result} does not say where and when it was measured; run the bench again")
    about = told.pop("measured")
    lines = SECTIONS[name](told["runs"] if list(told) == ["runs"] else told)
    of = f"commit {about['commit']}" if about["commit"] else f"release {about['version']}"
    body = "\n".join([*lines, "", f"Measured on {about['machine']}, {about['at'][:10]}, {of}."])
    page.write_text(section.sub(lambda m: f"{m[1]}{body}\n{m[2]}", text), encoding="utf-8")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def allocators(told: Told) -> list[str]:
    """Return each model's row per allocator: speed-up by batch, and the memory at the end."""
    gains = told["gains"]
    batches = sorted({g["batch"] for g in gains})
    rows = []
    for model in unique(g["model"] for g in gains):
        for allocator in unique(g["allocator"] for g in gains if g["model"] == model):
            own = {
                g["batch"]: g for g in gains if (g["model"], g["allocator"]) == (model, allocator)
            }
            last = own[max(own)]
            mean = math.exp(statistics.fmean(math.log(g["speedup"]) for g in own.values()))
            cells = [
                f"{g['speedup']:.2f} ± {g['speedup_stderr']:.2f}" for _, g in sorted(own.items())
            ]
            memory = f"{last['glibc_bytes'] / 2**20:.0f} → {last['own_bytes'] / 2**20:.0f} MiB"
            rows.append((model, f"`{allocator}`", *cells, f"{mean:.2f}", memory))
    heads = ("model", "allocator", *(f"batch {b}" for b in batches), "mean", "own memory")
    worst = max(g["foreign"] for g in gains)
    return [
        "Speed-up of one instance on every core over the same with glibc's defaults, in alternating "
        "windows:",
        "",
        *table(heads, rows),
        "",
        f"Other programs used at most {worst:.0%} of the cores in a counted window.",
    ]


def packrat(told: Told) -> list[str]:
    """Return each model's speed-ups, what was chosen, and by how much predictions were off."""
    batches = [b["batch"] for b in told["models"][0]["batches"]]
    rows = [(model["model"], *map(packing, model["batches"])) for model in told["models"]]
    median, least, most = (
        told[f"prediction_error_{what}_percent"] for what in ("median", "least", "most")
    )
    predicted = (
        "no packing was chosen, so none was predicted"
        if median is None
        else f"the chosen plans were predicted with a median error of {median:.1f} % "
        f"(from {least:+.1f} to {most:+.1f} %), their own windows left out"
    )
    rejected = sum(m["rejected_windows"] for m in told["models"])
    disturbed = sum(m["disturbed_windows"] for m in told["models"])
    return [
        "Speed-up over the fat instance, both with the default allocator, in windows after the choice:",
        "",
        *table(("model", *(f"B = {b}" for b in batches)), rows),
        "",
        f"Mean {told['speedup_mean']:.2f} (the fat instance counting as 1), most "
        f"{told['speedup_max']:.2f}; {told['slower_than_fat'] or 'none'} slower than the fat instance "
        f"beyond noise; {predicted}. {rejected} windows were discarded for foreign load, {disturbed} "
        "kept despite it.",
    ]


def admission(told: Told) -> list[str]:
    """Return each made-up kind's row, then each arm's of the real pair."""
    kinds = [
        (
            kind["kind"],
            str(kind["pairs"]),
            str(kind["could"]),
            f"{kind['above']:.1%} (worst {kind['above_worst']:.1%})",
            "none could run" if kind["admitted"] is None else f"{kind['admitted']:.0%}",
        )
        for kind in told["made_up"]
    ]
    pair = told["live"]
    alone, headroom = pair["alone"], pair["headroom"]
    derived = f"{headroom:g} × the median" if headroom else "given; the median was"
    arms = [
        (
            arm["arm"],
            f"{arm['kept']:.0%} of {arm['windows']}",
            "–" if arm["kept_quiet"] is None else f"{arm['kept_quiet']:.0%} of {arm['quiet']}",
            f"{arm['tail_median_ms']:.1f} ms",
            f"{arm['steps_per_s']:.1f}",
            f"{arm['share']:.0%}",
        )
        for arm in pair["arms"]
    ]
    return [
        *table(
            (
                "made-up pair",
                "pairs",
                "could run",
                "windows with the job above the limit",
                "ran, of what could have run",
            ),
            kinds,
        ),
        "",
        f"A real pair at {pair['rate_per_s']:.0f} requests/s, in turns of {pair['window_s']:g} s. "
        f"The p99 limit of {pair['limit_ms']:.1f} ms is {derived} of {alone['windows']} windows "
        f"without fine-tuning, measured before ({alone['median_ms']:.1f} ms). In a quiet window other "
        "programs used at most 15 % of the cores:",
        "",
        *table(
            (
                "fine-tuning",
                "windows within the limit",
                "quiet ones",
                "median p99",
                "steps/s",
                "of the time",
            ),
            arms,
        ),
    ]


def speculation_synthetic(told: Told) -> list[str]:
    """Return each kind of decoder's row: its table over plain decoding and over the best length."""
    rows = [
        (
            d["decoder"],
            f"{d['points']:.0f} to {d['profiled_to']} requests",
            *(f"{d[name]:.3f}" for name in ("over_plain_least", "over_plain_mean", "over_oracle",
                                           "over_oracle_mean", "over_oracle_least")),
        )
        for d in told["decoders"]
    ]  # fmt: skip
    heads = ("decoder", "points measured", "× plain, least", "× plain, mean", "× oracle, worst decoder",
             "× oracle, mean", "× oracle, least at a load")  # fmt: skip
    fell = told["collapse"]
    return [
        *table(heads, rows),
        "",
        f"{told['seeds']} decoders of each kind, true rates at {len(told['loads'])} loads from 1 to "
        f"{max(told['loads'])} requests. After acceptance fell to one token in twenty: "
        f"{fell['over_plain_least']:.3f} × plain decoding at least with the fall-back, "
        f"{fell['over_plain_without_fallback']:.2f} × without it.",
    ]


def speculation(told: Told) -> list[str]:
    """Return the rates by batch, what the moving load and the collapse came to, and the drafts."""
    rows = []
    for b in told["batches"]:
        over_off, over_best = b["adaptive_over_off"], b["adaptive_over_best"]
        rates = (b["fixed"]["0"], b["fixed"][str(b["best_fixed"])], b["adaptive"])
        rows.append(
            (
                str(b["batch"]),
                str(b["planned"]),
                str(b["best_fixed"]),
                *(f"{rate:.0f} ± {stderr:.0f}" for rate, stderr in rates),
                *(f"{ratio:.2f} ± {stderr:.2f}" for ratio, stderr in (over_off, over_best)),
            )
        )
    heads = ("requests", "planned length", "best fixed", "off, tokens/s", "best fixed, tokens/s",
             "adaptive, tokens/s", "× off", "× best fixed")  # fmt: skip
    moving, fell, table_ = told["moving"], told["collapse"], told["table"]
    stopped = fell["stopped_after_s"]
    drafts = [
        f"{d['draft']} {d['predicted']:.0f} and {d['measured']:.0f} ± {d['stderr']:.0f}"
        for d in told["drafts"]
    ]
    return [
        f"The plan came from {table_['points']} of {table_['of']} points; the draft is `{told['draft']}`.",
        "",
        *table(heads, rows),
        "",
        f"Under a load that moves through {min(moving['loads'])} to {max(moving['loads'])} requests as the "
        f"trace's arrivals do: {moving['adaptive_over_off']:.2f} × off, "
        f"{moving['adaptive_over_single_best']:.2f} × the best single length ({moving['single_best']}).",
        "",
        f"Source text becomes random bytes at one request, drafted by `ngram`: drafting stopped "
        f"{'never' if stopped is None else f'after {stopped:.2g} s'}, "
        f"{fell['after'] / fell['plain_after']:.2f} × plain decoding afterwards.",
        "",
        f"Drafts, tokens/s predicted and measured: {'; '.join(drafts)}. {told['misranked']} of the pairs "
        "that differ by more than noise were predicted in the wrong order.",
        "",
        f"{told['rejected_windows']} windows were discarded for foreign load, "
        f"{told['disturbed_windows']} kept despite it (worst {told['foreign_worst']:.0%}).",
    ]


MOST_ABOVE = 0.05
"""An arm keeps its limits where no larger share of its windows is above one."""


def load(told: Told) -> list[str]:
    """Return what each arm saved and how it kept its limits, then our plan in each cell."""
    cells = told["cells"]
    lines = [
        "SIMULATED servers, limits on the p99 of time to first token and time per token. Each cell: saving "
        "relative to the governor / windows above a limit; **bold** if the limits are kept.",
        "",
    ]
    arms = unique(arm["arm"] for cell in cells for arm in cell["arms"])
    rows = []
    for cell in cells:
        by = {arm["arm"]: arm for arm in cell["arms"]}
        name = cell["server"].removeprefix("simulated:")
        rows.append(
            (
                f"`{name}`, {cell['trace']}, 1/{cell['share']}, {cell['slack']:g} ×",
                *(kept(by[a]) for a in arms),
            )
        )
    lines += table(("server, trace, share of the trace, slack", *arms), rows)
    heads = ("cell", "limits, ms", "windows", "best single", "possible", "captured by ours", "worst p99",
             "rows", "trials, hours")  # fmt: skip
    own = []
    for cell, row in zip(cells, rows, strict=True):
        ours = next(a for a in cell["arms"] if a["arm"] == "plan by load")
        own.append(
            (
                row[0],
                f"{cell['ttft_p99_ms']:.0f}, {cell['tpot_p99_ms']:.1f}",
                str(cell["windows"]),
                f"{cell['single_mhz']:.0f} MHz",
                f"{cell['possible']:.2%} ± {cell['possible_stderr']:.2%}",
                f"{ours['captured']:.2f} ± {ours['captured_stderr']:.2f}"
                if ours["captured"] is not None
                else "nothing to gain",
                f"{ours['worst']:.2f} ×",
                str(len(cell["plan"])),
                f"{cell['trials']}, {cell['hours']:.1f}",
            )
        )
    behind = [pair for cell in cells for pair in cell["pairs"] if pair["keeps_as_often"]]
    ahead = sum(p["difference"] > p["difference_stderr"] for p in behind)
    return [
        *lines,
        "",
        *table(heads, own),
        "",
        f"Of {len(behind)} pairs with an arm that keeps its limits as often (oracles included), our plan "
        f"uses less energy by more than the paired standard error in {ahead}.",
        "",
        *(f"Our study of {row[0]} ended {c['note']}." for c, row in zip(cells, rows, strict=True)),
        "",
        *(
            f"A suggestion with {t['settings']:,} settings, {t['trials']} trials and "
            f"{counted(t['loads'], 'load')} takes {t['median_s']:.2f} s of CPU time (at most "
            f"{t['worst_s']:.2f} s)."
            for t in told["suggestions"]
        ),
    ]


def load_real(told: Told) -> list[str]:
    """Return what each arm used and answered on a real service, and how far our plan came."""
    heads = ("arm", "CPU s", "windows above", "worst p99", "p99 low / high, ms", "requests lost")
    rows = [
        (
            arm["arm"],
            f"{arm['cpu_s']:.2f}",
            f"{arm['above']:.0%} of {len(arm['p99_s'])}",
            f"{arm['worst']:.2f} ×",
            " / ".join(f"{1000 * arm[load][0]:.0f}" for load in ("low", "high")),
            str(arm["unanswered"]),
        )
        for arm in told["arms"]
    ]
    low, high = told["rates_per_s"]
    plan = ", ".join(
        f"below {below:.3g}/s: {value}" if below not in (None, math.inf) else f"else {value}"
        for below, value in ((None if b is None else float(b), v) for b, v in told["plan"])
    )
    busy = " and ".join(f"{load:.1f}" for load in told["load_averages"])
    if told["arms"][-1]["above"] > MOST_ABOVE:
        way = "Our plan's run broke the limit, so its CPU time is not compared."
    elif told["captured"] is None:
        way = f"Best single: {told['single'] or 'none keeps the limit'}; none per load takes less."
    else:
        way = (
            f"Best single: {told['single']}; one per load would take {told['per_load_cpu_s']:.2f} s of "
            f"CPU time. Our plan went {told['captured']:.2f} of the way."
        )
    return [
        f"A REAL service, {low:g} and {high:g} requests/s in turns of {told['phase_s']:g} s, limit on the "
        f"p99 {told['limit_ms']:.0f} ms. Load average of the machine before and after: {busy}.",
        "",
        *table(heads, rows),
        "",
        f"{way} The plan: {plan}; after {told['trials']} trials in {told['tuned_s']:.0f} s the study was "
        f"{told['note']}.",
    ]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def kept(arm: Told) -> str:
    """Return what an arm saved and the share of its windows above a limit, bold where that is kept."""
    text = f"{100 * arm['saving']:.1f} / {100 * arm['above']:.0f} %"
    return f"**{text}**" if arm["keeps"] else text


def federated(told: Told) -> list[str]:
    """Return what each way to set rounds took to the same accuracy, and what fedgpo is held to."""
    of = told["judged"]
    whole = sum(not any(j["missed"] for j in one["judged"]) for one in told["federations"])
    lines = [
        f"Joules to the target, relative to the best fixed setting: mean {of['energy_mean']:.2f} × over "
        f"the {whole} federations without a missed target (goal 1.25), {of['energy_worst']:.2f} × at "
        f"worst (goal 1.35). Their time is at most {of['time_over_defaults_worst']:.2f} × that of "
        f"Flower's defaults. Seconds as the objective: {of['seconds_worst']:.2f} × at worst; grams: "
        f"{of['grams_worst']:.2f} ×. {of['missed'] or 'No'} of {15 * len(told['federations'])} trainings "
        "missed a target that a fixed setting reaches.",
        "",
        *_against_fixed(told["federations"]),
        *_intervals(told["intervals"]),
    ]
    for one in told["federations"]:
        if SCALED in one["title"]:
            arms = [f"{a['name']} {spread(a['saving'], 1.0, 1)}" for a in one["arms"][1:]]
            lines += [
                f"**{one['title']}**, × less energy than the defaults: {', '.join(arms)}.",
                "",
            ]
        else:
            lines += _arms(one)
    decided = max(
        a["decision_ms"] for f in told["federations"] for a in f["arms"] if a["name"] != "fedgpo-bo"
    )
    return [*lines, f"A decision took at most {decided:.1f} ms a round, except fedgpo-bo."]


def _against_fixed(found: Told) -> list[str]:
    heads = ("federation", "objective", "best fixed (K, B, E)", "fedgpo / best fixed", "each seed",
             "reached", "fedgpo-qlearning / best fixed", "reached")  # fmt: skip
    rows = [
        (
            one["title"],
            UNITS[j["objective"]],
            ", ".join(str(v) for v in j["best_fixed"].values()),
            f"{j['ratio']:.2f}" + (f" (missed in {len(j['missed'])})" if j["missed"] else ""),
            ", ".join(f"{ratio:.2f}" for ratio in j["by_seed"]),
            f"{j['reached']} of 5",
            f"{j['paper_ratio']:.1f}",
            f"{j['paper_reached']} of 5",
        )
        for one in found
        for j in one["judged"]
    ]
    return [*table(heads, rows), ""]


def _intervals(found: Told) -> list[str]:
    rows = [
        (
            one["title"],
            str(one["best_fixed"]["averaging_steps"]),
            f"{one['ratio']:.2f}",
            ", ".join(f"{ratio:.2f}" for ratio in one["by_seed"]),
            f"{5 - len(one['missed'])} of 5",
        )
        for one in found
    ]
    heads = (
        "steps between averagings",
        "best fixed",
        "fedgpo's joules / best fixed",
        "each seed",
        "reached",
    )
    return [*table(heads, rows), ""] if rows else []


def _arms(one: Told) -> list[str]:
    heads = ("arm", "energy to the target, kJ", "time, h", "rounds", "reached",
             "energy: × less", "time: × less")  # fmt: skip
    rows = [
        (
            arm["name"],
            spread(arm["energy_j"], 1000.0, 1),
            spread(arm["seconds"], 3600.0, 2),
            spread(arm["rounds"], 1.0, 0),
            f"{arm['reached']} of 5",
            spread(arm["saving"], 1.0, 1),
            spread(arm["faster"], 1.0, 1),
        )
        for arm in one["arms"]
    ]
    return [f"**{one['title']}**, target {one['target']:.3f}:", "", *table(heads, rows), ""]


SCALED = "power ×"
"""Federations that differ from another by a scaled power only: told in one line."""
UNITS = {"energy_j": "joules", "round_s": "seconds", "carbon_g": "grams"}


def devices(told: Told) -> list[str]:
    """Return a row per simulated device and policy, by its true values."""
    rows = [
        (
            row["device"].removeprefix("simulated:"),
            f"`{row['policy']}`",
            f"{row['settings']:,}",
            f"{100.0 * row['saving']:.1f} ± {100.0 * row['saving_stderr']:.1f}",
            f"{100.0 * row['possible']:.1f}",
            f"{row['captured']:.2f}",
            f"{row['trials_to_near']:g} ({row['near']} of {row['studies']})"
            if row["near"]
            else "–",
            f"{100.0 * row['violations']:.0f} %",
            str(row["held_above"]),
        )
        for row in told["rows"]
    ]
    heads = (
        "device", "policy", "settings", "% saved", "% possible", "captured",
        "trials to 95 % (studies)", "tried above the limit", "held above it",
    )  # fmt: skip
    return [f"SIMULATED, latency_p99_ms <= {told['slack']:g}x baseline.", "", *table(heads, rows)]


def boards(told: Sequence[Told]) -> list[str]:
    """Return a row per mounted board and policy: what was saved of what there is, and at what cost."""
    rows = []
    for name, policy in dict.fromkeys((one["board"], one["policy"]) for one in told):
        own = [one for one in told if (one["board"], one["policy"]) == (name, policy)]
        near = [one["trials_to_95"] for one in own if one["trials_to_95"]]
        tried, above = (sum(one[key] for one in own) for key in ("tried", "tried_above"))
        saved = [100.0 * one["saving"] for one in own]
        rows.append(
            (
                name,
                policy,
                f"{statistics.fmean(saved):.1f} ({min(saved):.1f} to {max(saved):.1f})",
                f"{100.0 * own[0]['possible']:.1f}",
                f"{min(one['captured'] for one in own):.2f}",
                f"{statistics.median(near):g} ({len(near)} of {len(own)})" if near else "never",
                f"{100.0 * above / tried:.0f} % of {tried}",
                f"{sum(not one['kept'] for one in own)} of {len(own)}",
            )
        )
    heads = (
        "board", "policy", "% saved (least, most)", "% possible", "least captured",
        "trials to 95 % (studies)", "tried above the limit", "held above it",
    )  # fmt: skip
    return [
        "SIMULATED, through the actuator's socket; 20 trials, latency_p99_ms <= 1.2x baseline; true "
        "values.",
        "",
        *table(heads, rows),
    ]


def spread(value: Told, unit: float, digits: int) -> str:
    """Return a mean and its standard error in a unit."""
    return f"{value['mean'] / unit:.{digits}f} ± {value['stderr'] / unit:.{digits}f}"


def packing(batch: Told) -> str:
    """Return a cell: the speed-up, the instances with their threads and items, or that fat stays."""
    confirming, groups = batch["confirming"], batch["plan"]
    if confirming is None:
        return "1"
    if batch["plan"] != batch["candidate"]:
        return f"1 ({confirming['speedup']:.2f} ± {confirming['stderr']:.2f}: fat stays)"
    chosen = " + ".join(f"{g['instances']} × ⟨{g['threads']}, {g['batch']}⟩" for g in groups)
    return f"{batch['speedup']:.2f} ± {batch['speedup_stderr']:.2f}: {chosen}"


def unique(names: Iterable[Name]) -> list[Name]:
    """Return the names once each, in their order."""
    return list(dict.fromkeys(names))


def service(told: Told) -> list[str]:
    """Return what waiting agents cost each commit's tuner, and how late its orders are."""
    rows = []
    for o in told:
        own = (o["core"] - o["idle_core"]) / o["agents"]
        order = "–" if o["order_p99_s"] is None else f"{o['order_p99_s']:.2f} s of {o['orders']}"
        rows.append(
            (
                o["commit"],
                f"{o['agents']:,}",
                f"{o['core']:.3f}",
                f"{own * 1e6:.0f}",
                f"{o['bytes_per_agent'] / 1e3:.0f} kB",
                f"{o['health_p50_s'] * 1e3:.1f} and {o['health_p99_s'] * 1e3:.0f} ms",
                order,
                f"{o['foreign']:.0%}",
            )
        )
    heads = ("commit", "agents waiting", "cores used", "per agent, millionths of a core",
             "memory per agent",
             "`/v1/health`, p50 and p99", "order latency, p99", "foreign load")  # fmt: skip
    return ["One run per row, in the order of the runs:", "", *table(heads, rows)]


def pages(told: Told) -> list[str]:
    """Return how long each page takes over each database, and what a page that is watched costs."""
    asked = list(told[0]["p95_s"])
    rows = [[f"`{path}`", *(cell for o in told for cell in _page_times(o, path))] for path in asked]
    heads = ["page", *(h for o in told for h in (f"{o['database']}, p95", "first"))]
    watched = ", ".join(
        f"{o['viewer_core']:.1%} of a core, beside {o['idle_core']:.1%} without ({o['database']})"
        for o in told
    )
    of, load = told[0], max(o["load"] for o in told)
    pending = max(o["pending"] for o in told)
    behind = f"{pending} studies not computed yet, " if pending else ""
    behind += "tuner and database at real-time priority, " if of.get("realtime") else ""
    return [
        f"{of['devices']:,} devices, {of['studies']:,} studies, {of['trials']:,} trials ({behind}load "
        f"average of the machine {load:.0f}):",
        "",
        *table(heads, rows),
        "",
        f"A viewer of the fleet page costs {watched}.",
    ]


def tasks(told: Told) -> list[str]:
    """Return how many steps an operator's tasks take on the pages and on the command line."""
    rows = [
        (
            o["task"],
            str(o["steps"]),
            f"{o['page_s']:.1f} s",
            f"`{o['command']}`",
            f"{o['command_s']:.1f} s",
        )
        for o in told["tasks"]
    ]
    heads = ("task", "steps on the pages", "the pages took", "command", "it took")
    load = f"The load average of the machine was {told['load']:.0f}."
    return [*table(heads, rows), "", load]


def budgets(told: Told) -> list[str]:
    """Return the section of budgets: failures, events on real hosts, division, a week of prices."""
    lines: list[str] = []
    if hosts := told.get("hosts"):
        rows = (
            (
                one["name"],
                f"{one['before_w']:.0f} → {one['budget_w']:.0f} W",
                f"{one['complied_s']:.1f} s",
                f"{one['above_ws']:.0f} W·s",
                str(len(one["unreachable"])),
            )
            for one in hosts["scenes"]
        )
        lines += [
            f"{hosts['hosts']} hosts with real agents and actuators over a fake NVML each, "
            f"{hosts['curves']} with the curve of a measured GPU, at a load average of "
            f"{hosts['load']:.0f}; the caps are read from its state. Time is from `effective_at`, or "
            "from the restart of the tuner:",
            "",
            *table(
                (
                    "event",
                    "sum of caps before → budget",
                    "complied after",
                    "above 10 s later",
                    "unreachable",
                ),
                rows,
            ),
            "",
        ]
    if fleets := told.get("fleets"):
        lines += [
            f"{fleets['fleets']:,} random fleets with lost and late messages, deaths, reboots and steps: "
            f"{len(fleets['above'])} had unnamed watts above their budget, {fleets['floors_broken']} "
            f"floors were broken, {fleets['deadlocks']} did not use their watts again.",
            "",
        ]
    for one in told["worth"]:
        lines.append(
            f"- {one['source']}: throughput at least {one['small_worst']:.1%} of the best whole watts in "
            f"{one['small_groups']} groups of 2 to 4, at least {one['large_worst']:.1%} of the linear "
            f"bound in {one['large_groups']} groups of 200; {one['broken']} limits broken, "
            f"{one['broken_uniform']} with equal caps; {one['groups_worse']} of {one['groups']} groups "
            "had more broken than with equal caps."
        )
    week = told["week"]
    lines += [
        f"- A made-up week of prices and loads by hour, {week['weeks']} devices: the cost is "
        f"{week['mean_excess']:.1%} above an oracle of each hour in the mean, "
        f"{week['worst_excess']:.1%} at most, and {week['mean_of_highest']:.1%} of that at the highest cap."
    ]
    return lines


def declared(told: Told) -> list[str]:
    """Return how long a fleet file takes on each database, and what became of killed appliers."""
    heads = ("database", "devices", "diff, s", "apply, s", "second apply, s", "changes by it")
    names = ("database", "devices", "diff_s", "apply_s", "again_s", "changes_again")
    rows = [[str(one[name]) for name in names] for one in told["applied"]]
    killed, windows = told["killed"], told["windows"]
    return [
        *table(heads, rows),
        "",
        f"The applier was killed at each of {killed['points']} points (before and after every commit): "
        f"applied again, {killed['converged']} of the fleets are as declared. Of {told['wrong_files']} "
        f"wrong files {told['named_line_and_key']} are refused with line and key, and change nothing. "
        f"Over {windows['days']} days, two of them with a change of clocks, {windows['wrong']} windows "
        "opened at another time or for another length than they should.",
        *_fronts(told.get("fronts", {})),
    ]


def _fronts(shares: Mapping[str, float]) -> list[str]:
    """Return how much of the true front a search of two objectives knows."""
    if not shares:
        return []
    listed = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    mean = sum(shares.values()) / len(shares)
    return [
        "",
        f"After at most 30 trials of `pareto` on made-up surfaces (2 % noise) the measured settings have "
        f"{mean:.1%} of the hypervolume of all settings: {listed}.",
    ]


def release(told: Told) -> list[str]:
    """Return what came of each step of a release's check, in each root, and its seconds and sizes."""
    rows = [[step["root"], step["step"], *_release_step(step)] for step in told["steps"]]
    return table(("root", "step", "result", "s", "sizes and times"), rows)


def _release_step(step: Told) -> tuple[str, str, str]:
    if "not_run" in step:
        return "not run", "–", str(step["not_run"])
    size = step.get("mb")
    sizes = size.items() if isinstance(size, dict) else [("", size)] if size is not None else []
    shown = [f"{name} {value} MB".strip() for name, value in sizes]
    shown += [step["again"]] if "again" in step else []
    shown += [f"dpkg {step['dpkg_s']} s"] if "dpkg_s" in step else []
    shown += [f"{name} {seconds} s" for name, seconds in step.get("steps", {}).items()]
    judged = step.get("lintian", {})
    shown += [f"{sum(tags.values())} {kind}" for kind, tags in judged.items()]
    shown += ["missing: " + ", ".join(step["missing"])] if step.get("missing") else []
    shown += [f"{name} {step[name]}" for name in ("python", "systemd") if name in step]
    return str(step["result"]), f"{step['seconds']:.0f}", ", ".join(shown)


def _page_times(o: Told, path: str) -> tuple[str, str]:
    return f"{1e3 * o['p95_s'][path]:.0f} ms", f"{1e3 * o['first_s'][path]:.0f} ms"


def surfaces(told: Told) -> list[str]:
    """Return how tuners did on surfaces of known truth: together, in pairs, by source, left out."""
    each = f"{told['seeds']} studies" if told["seeds"] > 1 else "one study"
    lines = [f"Each surface: {each}, {100.0 * told['noise']:g} % noise per window."]
    for slack in unique(row["slack"] for row in told["rows"]):

        def own(kind: str, at: float = slack) -> list[Told]:
            return [row for row in told[kind] if row["slack"] == at]

        lines += ["", f"**Limit {slack:g} × baseline**, {own('rows')[0]['surfaces']} surfaces:", ""]
        lines += _standings(own("rows"))
        if own("pairs"):
            lines += [
                "",
                "Difference of the capture, ours minus theirs: mean over sources, then over surfaces "
                "(pooled):",
                "",
            ]
            lines += _duels(own("pairs"))
        if len({row["source"] for row in own("by_source")}) > 1:
            lines += ["", *_by_source(own("by_source"))]
        for choice in own("generalisations"):
            lines += ["", *_left_out(choice)]
    return lines


JUDGED_AT = 8
"""After so many trials, or the next budget there is, windows above a limit are told by source."""


def _standings(rows: Sequence[Told]) -> list[str]:
    budgets = unique(row["budget"] for row in rows)
    cells = []
    for tuner in unique(row["tuner"] for row in rows):
        own = [row for row in rows if row["tuner"] == tuner]
        cells.append(
            [
                f"`{tuner}`",
                *(doubtful(row["captured"], row["captured_stderr"]) for row in own),
                _each(own, "windows_above"),
                " / ".join(beyond(row["overshoot"]) for row in own),
                " / ".join(f"{100.0 * row['wrong_deployments']:.1f}" for row in own),
                f"{own[-1]['seconds_per_suggestion']:.2f}",
            ]
        )
    at = "@" + "/".join(map(str, budgets))
    heads = (
        "tuner", *(f"@{b}" for b in budgets), f"windows above per study {at}",
        f"worst overshoot of a study {at}", f"% deployed above {at}", "s per suggestion",
    )  # fmt: skip
    return table(heads, cells)


def _duels(pairs: Sequence[Told]) -> list[str]:
    budgets = unique(pair["budget"] for pair in pairs)
    cells = []
    for rival in unique(pair["rival"] for pair in pairs):
        own = [pair for pair in pairs if pair["rival"] == rival]
        ratios = ("–" if p["windows_ratio"] is None else f"{p['windows_ratio']:.2f}" for p in own)
        cells.append(
            [
                f"`{rival}`",
                *(doubtful(p["difference"], p["difference_stderr"], "+") for p in own),
                *(doubtful(p["pooled"], p["pooled_stderr"], "+") for p in own),
                " / ".join(ratios),
            ]
        )
    heads = ("than", *(f"@{b}" for b in budgets), *(f"pooled @{b}" for b in budgets),
             "windows above, ours / theirs")  # fmt: skip
    return table(heads, cells)


def _by_source(rows: Sequence[Told]) -> list[str]:
    tuners = unique(row["tuner"] for row in rows)
    budgets = unique(row["budget"] for row in rows)
    at = next((b for b in budgets if b >= JUDGED_AT), budgets[-1])
    cells = []
    for source in unique(row["source"] for row in rows):
        own = [row for row in rows if row["source"] == source]
        of = {t: [row for row in own if row["tuner"] == t] for t in tuners}
        cells.append(
            [
                source,
                str(own[0]["surfaces"]),
                *(
                    f"{_each(r, 'captured')} ({r[budgets.index(at)]['windows_above']:.1f})"
                    for r in of.values()
                ),
            ]
        )
    shown = "/".join(map(str, budgets))
    return [
        f"By source, captured @{shown} (windows above the limit per study @{at}):",
        "",
        *table(("source", "surfaces", *(f"`{t}`" for t in tuners)), cells),
    ]


def _left_out(choice: Told) -> list[str]:
    """Return what was chosen without each source and is worth there, beside the choice on all."""
    cells = [
        [
            one["source"],
            f"`{one['chosen']}`",
            _figures(one["captured"]),
            _figures(one["windows_above"]),
        ]
        for one in choice["sources"]
    ]
    lost = zip(choice["difference"], choice["difference_stderr"], strict=True)
    cells += [
        ["mean", "–", _figures(choice["left_out"]), _figures(choice["left_out_windows_above"])],
        ["in-sample", f"`{choice['chosen']}`", _figures(choice["in_sample"]),
         _figures(choice["in_sample_windows_above"])],
        ["more in-sample", "–", " / ".join(doubtful(d, e, "+") for d, e in lost), "–"],
    ]  # fmt: skip
    at = "@" + "/".join(map(str, choice["budgets"]))
    heads = ("source left out", "chosen without it", f"captured there {at}", f"windows above {at}")
    return [f"Chosen among {', '.join(choice['candidates'])}:", "", *table(heads, cells)]


def _each(rows: Sequence[Told], key: str, digits: int = 2) -> str:
    return _figures([row[key] for row in rows], digits)


def _figures(values: Iterable[float], digits: int = 2) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values)


def beyond(overshoot: float) -> str:
    """Return an overshoot in percent, as a factor of the limit from twice on."""
    return f"×{1.0 + overshoot:.1f}" if overshoot >= 1.0 else f"{100.0 * overshoot:.1f} %"


def doubtful(value: float, stderr: float | None, sign: str = "") -> str:
    """Return a share and its standard error where there is one."""
    return f"{value:{sign}.2f}" if stderr is None else f"{value:{sign}.2f} ± {stderr:.2f}"


def engines(told: Told) -> list[str]:
    """Return each engine's row: what was chosen, and its CPU time beside defaults and advice."""

    def saved(arm: Told) -> str:
        return f"{arm['saving_percent']:.0f} ± {arm['saving_stderr_percent']:.0f} %"

    rows = []
    for one in told.values():
        arms = one["arms"]
        chosen = ", ".join(f"{name} {value}" for name, value in one["chosen"].items())
        cpu = f"{arms['defaults']['cpu_s']:.2f} → {arms['chosen']['cpu_s']:.2f}"
        wall = f"{arms['defaults']['wall_s']:.2f} → {arms['chosen']['wall_s']:.2f}"
        rows.append(
            (
                one["title"],
                chosen or "the defaults",
                cpu,
                f"**{saved(arms['chosen'])}**",
                wall,
                f"{saved(arms['advice'])}: {one['advice']}",
                str(one["trials"]),
            )
        )
    heads = ("engine", "chosen", "CPU s of a run", "saved", "seconds of a run")
    return [
        "CPU time of a whole run with its start, six runs of each in turns, beside the engine's defaults; "
        "a run may take 1.1 × as long as by default:",
        "",
        *table((*heads, "saved by the vendor's advice", "trials"), rows),
    ]


def engines_joint(told: Told) -> list[str]:
    """Return a row for each search over llama-server's drafts and flags, and what a kill of it costs."""
    base = told["arms"]["defaults"]
    titles = {"defaults": "none", "sequential": "one knob after the other", "joint": "jointly"}
    rows = []
    for arm, one in told["arms"].items():
        changed = [f"{k} {v}" for k, v in one["setting"].items() if v != base["setting"][k]]
        if not one["setting"]["speculation_length"]:
            changed = [text for text in changed if not text.startswith("draft ")]
        saved = f"**{one['saving_percent']:.0f} ± {one['saving_stderr_percent']:.0f} %**"
        figures = (f"{one[name]:.2f}" for name in ("cpu_time_ms", "tpot_p50_ms", "ttft_p50_ms"))
        rate = f"{one['throughput_per_s']:.0f}"
        search, _, most = arm.partition(" ")
        title = f"{titles[search]}, {most} ×" if most else titles[search]
        rows.append((title, ", ".join(changed) or "defaults", *figures, rate, saved))
    killed, searches = told["killed"], told["searches"]
    again = "applied again" if killed["in_force"] else "LOST"
    reports = " and ".join(f"{one['report_s'] / 60.0:.1f} min" for one in searches)
    trials = " and ".join(f"{one['trials']}" for one in searches)
    windows = " and ".join(f"{one['windows']}" for one in searches)
    foreign = 100 * max(one["foreign"] for one in searches)
    return [
        f"llama.cpp with a small model of random weights and its first layer as the draft model, "
        f"{told['settings']} settings; limits relative to the baseline's median time per token. "
        f"`run --llm` reported {reports} after the command, with {trials} windows; the other search used "
        f"{windows}. Other programs used up to {foreign:.0f} % of the machine. Then six windows of each "
        "in turns:",
        "",
        *table(
            (
                "search, limit",
                "setting",
                "CPU ms per token",
                "TPOT p50 ms",
                "TTFT p50 ms",
                "tokens/s",
                "CPU time saved",
            ),
            rows,
        ),
        "",
        f"The server was replaced {told['changes']} times. Killed under load, it was started "
        f"{killed['restarts']} time again, and its setting was {again}.",
    ]


def gallery(told: Told) -> list[str]:
    """Return each entry's row: what was chosen, its saving, and how far it is from the best of all."""

    def saved(arm: Told, other: str) -> str:
        one = arm[f"over_{other}"]
        return f"{one['saving_percent']:.1f} ± {one['saving_stderr_percent']:.1f} %"

    rows, right, known = [], 0, 0
    for one in told.values():
        arms = one["arms"]
        base, own = arms["baseline"]["setting"], arms["found"]
        changed = ", ".join(f"{k} {v}" for k, v in own["setting"].items() if v != base[k])
        kept, near = "" if own["kept"] else "; breaks a limit", "unknown"
        if "optimum" in arms:
            missed = own["over_optimum"]
            known += 1
            good = missed["saving_percent"] >= -2.0 * missed["saving_stderr_percent"]
            right += good and own["kept"]
            best = ", ".join(
                f"{k} {v}" for k, v in arms["optimum"]["setting"].items() if v != base[k]
            )
            near = f"{best or 'the baseline'}: {saved(own, 'optimum')}{'' if good else ', missed'}"
        rows.append(
            (
                one["title"],
                f"{changed or 'nothing to gain'}{kept}",
                f"**{saved(own, 'baseline')}**" if changed else "–",
                saved(own, "off"),
                near,
                f"{one['trials']}, {one['settings']}",
                f"{one['load']:.0f}",
            )
        )
    heads = (
        "entry",
        "found",
        "saved",
        "saved over off",
        "best of all settings: found saves over it",
    )
    return [
        f"{right} of {known} entries found the best setting, within two standard errors of runs in turns:",
        "",
        *table((*heads, "trials, settings", "load"), rows),
        *_compression(told),
    ]


def _compression(told: Told) -> list[str]:
    lines = []
    for name in ("compression-slow", "compression-fast"):
        if name in told:
            each = "; ".join(
                f"{one['setting']['compress']} {one['means']['predicted_ms']:.1f}, "
                f"{one['means']['step_ms']:.1f}"
                for one in told[name]["every"]
            )
            lines += [
                "",
                f"{told[name]['title']}: milliseconds of a step, predicted, measured: {each}.",
            ]
    return lines


def plugins(told: Told) -> list[str]:
    """Return each example's study: its limits, what is held, and what that saves."""
    rows = []
    for one in told.values():
        baseline, best = one["baseline"], one["best"]
        objective = one["study"]["objective"].split()[-1]
        before = baseline["metrics"][objective]
        limits = "; ".join(f"`{text}`" for text in one["study"]["constraints"])
        if one["won"]:
            after = best["metrics"][objective]
            changed = {k: v for k, v in best["setting"].items() if v != baseline["setting"][k]}
            held = ", ".join(f"{k} {baseline['setting'][k]} → {v}" for k, v in changed.items())
            saved = f"**{one['saving_percent']:.1f} ± {one['saving_stderr_percent']:.1f} %**"
            values = f"{before['mean']:.3g} → {after['mean']:.3g}"
            kept = "; ".join(_kept(best, limit) for limit in one["study"]["limits"])
            windows = f"{baseline['windows']} and {best['windows']}"
        else:
            held, saved = "the defaults", f"nothing: {one['study']['why']}"
            values, kept, windows = f"{before['mean']:.3g}", "", f"{baseline['windows']}"
        others = f"{one['foreign_most']:.0%} ({one['foreign_share']:.0%})"
        rows.append((one["title"], limits, held, values, saved, kept, windows, others))
    heads = (
        "example",
        "limits",
        "held",
        "ms of CPU per item",
        "saved",
        "share of its limit",
        "windows",
    )
    trials = sum(one["trials"] for one in told.values())
    above = sum(one["violations"] for one in told.values())
    return [
        "CPU time per item, baseline against best in alternating windows, with standard errors:",
        "",
        *table((*heads, "foreign load"), rows),
        "",
        f"{trials} trials, {above} of them certainly above a limit, none of these held. `foreign load` is "
        "the largest share of the cores that other programs used in a counted window (in brackets: the "
        "share above which it was repeated). The machine was busy, so only CPU time is compared, in "
        "alternating windows. An item is an answer, a transaction, a request, an image or a frame.",
    ]


def _kept(best: Told, limit: Told) -> str:
    """Return how near to a limit the setting that is held came."""
    return f"{limit['metric']} at {best['metrics'][limit['metric']]['mean'] / limit['value']:.0%}"


def fleet(told: Told) -> list[str]:
    """Return what each part of the bench of a fleet has shown, as far as it was run."""
    found = [PARTS[name](told[name]) for name in PARTS if name in told]
    return [line for part in found for line in ("", *part)][1:]


def _held(o: Told) -> list[str]:
    memory = (o["tuner_bytes"] - o["tuner_bytes_before"]) / o["agents"]
    late = f"{o['order_p50_s']:.2f} and {o['order_p99_s']:.2f} s of {o['orders']}, {o['orders_lost']} lost"
    rows = [
        ("agents", f"{o['agents']:,}: {o['held']:,} hold a setting, {o['trying']} run a trial"),
        (
            "requests",
            f"{o['requests_per_s']:.0f} per second, {o['failed_per_s']:.2f} of them failed",
        ),
        (
            "trials, reported windows",
            f"{o['trials_per_s']:.1f}, {o['windows_per_s']:.1f} per second",
        ),
        (
            "`/v1/health`, p50 and p99",
            f"{1e3 * o['health_p50_s']:.1f} and {1e3 * o['health_p99_s']:.0f} ms",
        ),
        ("order latency, p50 and p99", late),
        ("the tuner", f"{o['tuner_core']:.2f} of a core, {memory / 1e3:.1f} kB per agent"),
    ]
    return [
        f"One tuner, PostgreSQL and all agents on this machine, for {o['seconds']:.0f} s "
        f"({o['commit']}; load average before {o['load_before']:.1f}):",
        "",
        *table(("quantity", "measured"), rows),
    ]


def _suffered(o: Told) -> list[str]:
    every_s = 60.0 * o["minutes"] / o["done"]["tuners killed"]
    done = ", ".join(f"{count} {what}" for what, count in sorted(o["done"].items()))
    known = ", ".join(f"{count} {what.removeprefix('trials ')}" for what, count in
                      sorted(o["receipts"].items()) if what.startswith("trials"))  # fmt: skip
    return [
        f"Three tuners for {o['minutes']:g} minutes, one killed every {every_s:.0f} s, one at a "
        f"time cut off from PostgreSQL for 30 s ({o['commit']}): {done}. {o['studies']} "
        f"studies ended with a setting. Of {o['trials']} trials none was lost or doubled; every device was "
        f"released at the end. Answers to reports: {known}; {o['failed']} requests failed.",
    ]


def _asked_for(o: Told) -> list[str]:
    took: dict[str, list[float]] = {}
    for run in o["runs"]:
        took.setdefault(run["by"], []).append(run["seconds"])
    first = statistics.fmean(next(iter(took.values())))
    means = {by: statistics.fmean(seconds) for by, seconds in took.items()}
    rows = [
        (by, f"{mean:.1f} s", f"{1e3 * mean / o['studies']:.1f} ms", f"{first / mean:.2f}")
        for by, mean in means.items()
    ]
    return [
        f"{o['studies']:,} studies of one space of {o['settings']} settings, {o['trials']} trials each, "
        f"that wait together ({o['commit']}), one thread per process; the same setting in every row "
        f"for {o['same']:,} of {o['studies']:,}:",
        "",
        *table(("computed by", "all studies", "per study", "speed-up"), rows),
    ]


def _looked_at(o: Told) -> list[str]:
    rows = [(what, f"{1e3 * o['p95_s'][what]:.0f} ms", f"{1e3 * first:.0f} ms") for what, first in
            o["first_s"].items()]  # fmt: skip
    per = o["bytes"] / o["trials"]
    return [
        f"{o['trials']:,} trials of {o['studies']:,} studies on {o['devices']} devices in PostgreSQL, two "
        f"metrics each: {o['bytes'] / 1e9:.1f} GB, {per:.0f} bytes per trial ({o['commit']}):",
        "",
        *table(("query", "p95", "first time"), rows),
    ]


def _upgraded(o: Told) -> list[str]:
    before, after = o["schemas"]
    told = ", ".join(f"{n} {kind}" for kind, n in sorted(o["receipts"].items()))
    return [
        f"Two tuners of an earlier commit, each replaced by today's ({o['commit']}), with {o['agents']:,} "
        f"agents connected and {o['studies']} of them tuned (schema {before} to {after}): of {o['trials']} "
        f"trials none was lost or doubled. {o['requests_in_vain']} requests of agents failed meanwhile. "
        f"Answers to reports: {told}.",
    ]


PARTS: dict[str, Callable[[Any], list[str]]] = {
    "holding": _held,
    "replicas": _suffered,
    "asking": _asked_for,
    "trials": _looked_at,
    "upgrade": _upgraded,
}
"""What the bench of a fleet is made of, in the page's order."""

FOUND_AT = 0.95
"""The share of what a study comes to hold at which it counts as found."""
LEAST_SAVING = 0.01
"""A study that holds less than this found nothing to be near to."""
BASELINE_WINDOWS = 2
"""Before these have ended nothing is tried, however many devices there are."""
LONG_WINDOWS = 4.0
"""Who finds it in fewer windows leaves little to divide: those surfaces are told apart."""


def apart(told: Told) -> list[str]:
    """Return when four like devices had found 95 % of what they hold, beside one, surface by surface."""
    pairs: dict[tuple[str, int], dict[int, Told]] = {}
    for run in told["runs"]:
        pairs.setdefault((run["surface"], run["seed"]), {})[run["devices"]] = run
    rows, both, longer = [], [], []
    for surface in unique(name for name, _ in pairs):
        own = [pair for (name, _), pair in pairs.items() if name == surface]
        found = [
            (_near(p[1]), _near(p[4])) for p in own if min(map(_worth, p.values())) >= LEAST_SAVING
        ]
        known = [(one, four) for one, four in found if one is not None and four is not None]
        both += known
        if known and statistics.fmean(one for one, _ in known) >= LONG_WINDOWS:
            longer += known
        rows.append(
            [
                surface,
                *_faster(known),
                *(f"{100.0 * _all_pairs_mean(own, n, 'saving'):.1f} %" for n in (1, 4)),
                " / ".join(f"{_all_pairs_mean(own, n, 'tried'):.1f}" for n in (1, 4)),
                " / ".join(f"{_all_pairs_mean(own, n, 'above'):.1f}" for n in (1, 4)),
            ]
        )
    heads = ("surface", "windows, one", "windows, four", "ratio", "saving, one", "saving, four",
             "trials, one / four", "above the limit, one / four")  # fmt: skip
    everything = list(pairs.values())
    one_s, four_s = (statistics.fmean(pair[n] for pair in both) for n in (0, 1))
    held = [_all_pairs_mean(everything, n, "held") for n in (1, 4)]
    wrong = [sum(pair[n]["held_above"] for pair in everything) for n in (1, 4)]
    above = [_all_pairs_mean(everything, n, "above") for n in (1, 4)]
    saved = [100.0 * _all_pairs_mean(everything, n, "saving") for n in (1, 4)]
    return [
        f"{told['seeds']} studies on each surface, virtual time in windows. A study counts until it has "
        f"measured a setting with {FOUND_AT:.0%} of its final true saving, without the {BASELINE_WINDOWS} "
        "windows of the baseline:",
        "",
        *table(heads, rows),
        "",
        f"Over all {len(both)} pairs with a saving: {one_s:.1f} windows with one device, {four_s:.1f} "
        f"with four, a ratio of {doubtful(*_time_ratio(both))}; with the baseline "
        f"{(four_s + BASELINE_WINDOWS) / (one_s + BASELINE_WINDOWS):.2f}. If one device needs "
        f"{LONG_WINDOWS:g} windows or more: {doubtful(*_time_ratio(longer))}. Until the hold, with "
        f"baseline and confirming windows, which all share: {held[1]:.1f} windows instead of "
        f"{held[0]:.1f}, a ratio of {held[1] / held[0]:.2f}. Held saving: {saved[0]:.1f} % with one, "
        f"{saved[1]:.1f} % with four. Trials above a limit per study: {above[0]:.2f} and {above[1]:.2f}. "
        f"Holds above a limit: {wrong[0]} and {wrong[1]} of {len(everything)}.",
    ]


def _near(run: Told) -> float | None:
    """Return after how many windows of tuning a run had found what it comes to hold, or nearly."""
    found = (at for at, saving in run["found"] if saving >= FOUND_AT * run["saving"])
    at = next(found, None)
    return None if at is None else at - BASELINE_WINDOWS


def _worth(run: Told) -> float:
    return float(run["saving"])


def _all_pairs_mean(pairs: Sequence[dict[int, Told]], devices: int, what: str) -> float:
    return statistics.fmean(pair[devices][what] for pair in pairs)


def _faster(known: Sequence[tuple[float, float]]) -> tuple[str, str, str]:
    if not known:
        return "–", "–", "–"
    one, four = (statistics.fmean(pair[n] for pair in known) for n in (0, 1))
    return f"{one:.1f}", f"{four:.1f}", f"{four / one:.2f}"


def _time_ratio(known: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the ratio of the means, with its standard error over the pairs (Cochran, §6.4)."""
    one, four = (statistics.fmean(pair[n] for pair in known) for n in (0, 1))
    ratio = four / one
    squares = math.fsum((b - ratio * a) ** 2 for a, b in known)
    return ratio, math.sqrt(squares / (len(known) - 1) / len(known)) / one


def transfer(told: Told) -> list[str]:
    """Return what finished studies are worth to new ones, and what wrong ones cost."""
    lines: list[str] = []
    for part, title in (
        ("made-up", "Made-up families"),
        ("boards", "Simulated boards"),
        ("surfaces", "Measured surfaces"),
    ):
        own = told.get(part, {})
        if "over sources" not in own:
            continue
        left_out = {f"{label} left out": rows for label, rows in own["over sources"].items()}
        lines += [*_transferred(f"{title}, {own['studies']} studies", left_out), ""]
        if len(own["databases"]) > 1:
            lines += [*_lowest(own), ""]
        lines += [*_bounds(title, own["bounds"]), ""]
    if "wrong" in told:
        own = told["wrong"]
        title = f"Wrong siblings, {own['studies']} studies"
        lines += [*_transferred(title, own["over sources"]), ""]
        lines += [*_bounds("Wrong siblings", own["bounds"]), ""]
    lines += _verified(told.get("verify", {}))
    if "cost" in told:
        o = told["cost"]
        lines.append(
            f"With {o['siblings']:,} siblings in the database and {o['settings']} settings, choosing takes "
            f"{o['choose_s']} s of CPU, loading {o['load_s']} s, a suggestion {o['suggest_s']['median']} s "
            f"(at most {o['suggest_s']['most']} s); without siblings {o['suggest_cold_s']['median']} s."
        )
    return lines


def _transferred(title: str, scenarios: Mapping[str, Sequence[Told]]) -> list[str]:
    """Return what studies capture without siblings, and what changes with those of each scenario.

    No row of what is deployed above a limit where nothing is.
    """
    first = next(iter(scenarios.values()))
    rows = [("captured without siblings", *(f"{r['cold']:.2f}" for r in first))]
    for label, own in scenarios.items():
        signed = (f"{r['difference']:+.3f} ± {r['stderr']:.3f}" for r in own)
        above = (f"{r['windows_above']:.2f} / {r['windows_above_cold']:.2f}" for r in own)
        wrong = (f"{100 * r['wrong']:.1f} / {100 * r['wrong_cold']:.1f}" for r in own)
        rows += [
            (f"{label}: difference", *signed),
            (f"{label}: windows above, with / without", *above),
        ]
        if any(r["wrong"] or r["wrong_cold"] for r in own):
            rows.append((f"{label}: % deployed above, with / without", *wrong))
    return table((title, *(f"@{r['budget']}" for r in first)), rows)


def _bounds(title: str, bounds: Told) -> list[str]:
    """Return the bounds that are missed, with their figures, and the number of the others."""
    every = [(label, text, one) for label, own in bounds.items() for text, one in own.items()]
    missed = [
        f"{label}, {text}: {one['figure']:+.3f}{' (' + one['source'] + ')' if 'source' in one else ''}"
        for label, text, one in every
        if not one["reached"]
    ]
    text = f"{title}: {len(every) - len(missed)} of {len(every)} bounds are reached."
    return [f"{text} **Missed**: {'; '.join(missed)}." if missed else text]


def _lowest(part: Told) -> list[str]:
    """Return each source's difference after eight trials, of those where siblings change it."""
    rows = [
        (name, label, r)
        for name, database in part["databases"].items()
        for label in part["over sources"]
        for r in database[label]
        if r["budget"] == 8
    ]
    changed = [row for row in rows if f"{abs(row[2]['difference']):.2f}" != "0.00"]
    listed = "; ".join(
        f"{name} ({label}) {r['difference']:+.2f} ± {r['stderr']:.2f}"
        for name, label, r in sorted(changed, key=lambda row: float(row[2]["difference"]))
    )
    return [f"Difference @8 by source, 0.00 for the {len(rows) - len(changed)} others: {listed}."]


def _verified(told: Told) -> list[str]:
    if not told:
        return []
    heads = ("device", "windows", "search", "windows above, without siblings", "saving")
    rows = [
        (
            name,
            str(o["windows"]),
            "yes" if o["searched"] else "no",
            f"{o['windows above']}, {o['windows above without siblings']}",
            f"{100 * o['saving']:.0f} %",
        )
        for name, o in told["odd"].items()
    ]
    broken, above = told["windows above a limit while verifying"], told["holds above a limit"]
    return [
        f"{told['devices']} devices one after the other: {told['windows, median']:.0f} windows to the "
        f"hold in the median, {told['windows, p90']:.0f} at the 90th percentile. {told['verified']} "
        f"verified the plan of the others, {told['searched']} searched. {broken} windows of these "
        f"broke the limit, and {above} of all holds do.",
        "",
        *table(heads, rows),
        "",
    ]


SECTIONS: dict[str, Callable[[Any], list[str]]] = {
    "boards": boards,
    "budgets": budgets,
    "declared": declared,
    "devices": devices,
    "host": devices,
    "host-alone": devices,
    "allocators": allocators,
    "apart": apart,
    "federated": federated,
    "made-up": surfaces,
    "caps": surfaces,
    "fleet": fleet,
    "admission": admission,
    "load": load,
    "load-real": load_real,
    "packrat": packrat,
    "pages": pages,
    "engines": engines,
    "engines-joint": engines_joint,
    "gallery": gallery,
    "plugins": plugins,
    "release": release,
    "service": service,
    "speculation": speculation,
    "speculation-synthetic": speculation_synthetic,
    "surfaces": surfaces,
    "tasks": tasks,
    "transfer": transfer,
}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(Path, sys.argv[3:4]))
