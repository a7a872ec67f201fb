"""Write a bench's figures into the page that has its section: `figures.py NAME RESULT.json [PAGE.md]`.

A bench owns what lies between its two markers, `<!-- figures: NAME -->` and `<!-- end: NAME -->`; all else
on the page stays. What was measured, where and when is in the result (`tests/bench/result.py`).

The sections are in figures.txt, each under the names that it has, as blocks:
- `> TEXT` is a paragraph, with the lines that follow it;
- `each ROWS:` is a table of the columns that follow, `HEAD :: CELL | HEAD :: CELL`;
- `@PART ITEMS` has the blocks of the section PART for each item.
A line or column `*NAME in ITEMS; …` is repeated for each item. In braces are expressions over the result's
keys and this file's functions, as in an f-string; `told` is the whole of a section, `o` a row.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "figures.md"
Told = Any
Names = dict[str, Any]


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
    if str(about["commit"]).endswith("-dirty"):
        sys.exit(
            f"{result} is of a changed tree ({about['commit']}); commit, then run the bench again"
        )
    told = told["runs"] if list(told) == ["runs"] else told
    of = f"commit {about['commit']}" if about["commit"] else f"release {about['version']}"
    end = ["", f"Measured on {about['machine']}, {about['at'][:10]}, {of}."]
    body = "\n".join([*rendered(name, told, HELPERS), *end])
    page.write_text(section.sub(lambda m: f"{m[1]}{body}\n{m[2]}", text), encoding="utf-8")


COMMIT = re.compile(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,12}(?:-dirty)?\b")


def measured() -> Iterator[tuple[Path, str, str, list[str]]]:
    """Yield each block's page, name, text and commits. A block without a run has no text."""
    block = re.compile(r"<!-- figures: ([\w-]+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)
    for page in sorted(DOCS.rglob("*.md")):
        for name, text in block.findall(page.read_text(encoding="utf-8")):
            yield page, name, text, unique(COMMIT.findall(text))


def sections() -> dict[str, list[list[str]]]:
    """Return the lines of each section's blocks, by the section's names."""
    text = Path(__file__).with_name("figures.txt").read_text(encoding="utf-8")
    found = {}
    for section in text.removeprefix("== ").split("\n== "):
        names, *lines = section.splitlines()
        blocks: list[list[str]] = []
        for line in lines:
            if re.match("> |@|each .*:$", line):
                blocks.append([])
            blocks[-1].append(line)
        found.update(dict.fromkeys(names.split(), blocks))
    return found


BLOCKS = sections()
SECTIONS = [name for name in BLOCKS if not name.startswith("@")]


def rendered(name: str, told: Told, names: Names) -> list[str]:
    """Return the lines of a section's blocks, a blank one between two."""
    names = {**names, "told": told, **(told if isinstance(told, Mapping) else {})}
    return _apart(_block(block, names) for block in BLOCKS[name])


def _apart(blocks: Iterable[list[str]]) -> list[str]:
    return [line for lines in blocks if lines for line in ("", *lines)][1:]


def _block(lines: Sequence[str], names: Names) -> list[str]:
    kind, _, rest = lines[0].partition(" ")
    if kind == "each":
        return _table(_value(rest[:-1], names), " | ".join(lines[1:]).split(" | "), names)
    if kind.startswith("@"):
        return _apart(rendered(kind, item, names) for item in _value(rest, names))
    return [
        _filled(text, own) for line in (rest, *lines[1:]) for text, own in _repeated(line, names)
    ]


def _table(rows: Iterable[Told], columns: Sequence[str], names: Names) -> list[str]:
    wide = [one for column in columns for one in _repeated(column, names)]
    cells = [
        [_filled(text.partition(" :: ")[0], bound) for text, bound in wide],
        ["---"] * len(wide),
    ]
    for row in rows:
        own = {**names, "o": row, **(row if isinstance(row, Mapping) else {})}
        found = []
        for text, bound in wide:
            own |= {key: bound[key] for key in bound.keys() - names.keys()}
            found.append(_filled(text.partition(" :: ")[2], own))
        cells.append(found)
    return [f"| {' | '.join(row)} |" for row in cells]


def _repeated(text: str, names: Names) -> Iterator[tuple[str, Names]]:
    """Yield a line or column once, or once for each item that it names, with what the item binds."""
    if not (found := re.match(r"\*([\w, ]+) in (.+?); (.*)", text, re.DOTALL)):
        yield text, names
        return
    bound = found[1].split(", ")
    for item in _value(found[2], names):
        yield (
            found[3],
            {**names, **dict(zip(bound, item if len(bound) > 1 else [item], strict=True))},
        )


def _filled(text: str, names: Names) -> str:
    return str(eval(f'f"""{text}"""', names))


def _value(expression: str, names: Names) -> Any:  # noqa: ANN401
    return eval(expression, names)


def unique(values: Iterable[Told]) -> list[Told]:
    """Return values once each, in their order."""
    return list(dict.fromkeys(values))


def grouped(rows: Iterable[Told], *keys: str) -> list[Told]:
    """Return the values of keys that rows have together, in their order, each with its rows as `own`."""
    groups: dict[tuple[Told, ...], list[Told]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [{**dict(zip(keys, group, strict=True)), "own": own} for group, own in groups.items()]


def pick(rows: Iterable[Told], **wanted: Told) -> Told:
    """Return the first row with these values."""
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def col(rows: Iterable[Told], key: str) -> list[Told]:
    """Return what each row has under a key."""
    return [row[key] for row in rows]


def joined(values: Iterable[Told], spec: str = "", between: str = ", ") -> str:
    """Return values in a format, in one text."""
    return between.join(format(value, spec) for value in values)


def pairs(table: Mapping[str, Told], base: Mapping[str, Told] | None = None) -> str:
    """Return names with their values, of those that differ from a base."""
    return ", ".join(f"{k} {v}" for k, v in table.items() if base is None or v != base[k])


def pm(value: Told, stderr: Told, spec: str = ".2f") -> str:
    """Return a value and its standard error where there is one."""
    return format(value, spec) if stderr is None else f"{value:{spec}} ± {stderr:{spec.strip('+')}}"


def saving(arm: Told, digits: int = 0) -> str:
    """Return an arm's saving with its standard error."""
    return f"{pm(arm['saving_percent'], arm['saving_stderr_percent'], f'.{digits}f')} %"


def kept(arm: Told) -> str:
    """Return what an arm saved and the share of its windows above a limit, bold where that is kept."""
    text = f"{100 * arm['saving']:.1f} / {100 * arm['above']:.0f} %"
    return f"**{text}**" if arm["keeps"] else text


def packing(batch: Told) -> str:
    """Return a cell: the speed-up, the instances with their threads and items, or that fat stays."""
    confirming, groups = batch["confirming"], batch["plan"]
    if confirming is None:
        return "1"
    if batch["plan"] != batch["candidate"]:
        return f"1 ({pm(confirming['speedup'], confirming['stderr'])}: fat stays)"
    chosen = " + ".join(f"{g['instances']} × ⟨{g['threads']}, {g['batch']}⟩" for g in groups)
    return f"{pm(batch['speedup'], batch['speedup_stderr'])}: {chosen}"


def beyond(overshoot: float) -> str:
    """Return an overshoot in percent, as a factor of the limit from twice on."""
    return f"×{1.0 + overshoot:.1f}" if overshoot >= 1.0 else f"{100.0 * overshoot:.1f} %"


def cell_of(cell: Told) -> str:
    """Return the name of a cell of the bench of loads."""
    name = cell["server"].removeprefix("simulated:")
    return f"`{name}`, {cell['trace']}, 1/{cell['share']}, {cell['slack']:g} ×"


def searched(arms: Mapping[str, Told]) -> list[Told]:
    """Return the arms of the joint search with their names and what they change."""
    base, titles = arms["defaults"], {"defaults": "none", "sequential": "one knob after the other"}
    rows = []
    for name, one in arms.items():
        lengthless = not one["setting"]["speculation_length"]
        own = {
            k: v for k, v in one["setting"].items() if not (lengthless and k.startswith("draft"))
        }
        search, _, most = name.partition(" ")
        title = titles.get(search, "jointly") + (f", {most} ×" if most else "")
        rows.append({**one, "title": title, "changed": pairs(own, base["setting"]) or "defaults"})
    return rows


def galleries(entries: Mapping[str, Told]) -> list[Told]:
    """Return each entry with what was found, and whether that is the best of all, None if not known."""
    rows = []
    for one in entries.values():
        arms = one["arms"]
        base, own = arms["baseline"]["setting"], arms["found"]
        right, near, changed = None, "unknown", pairs(own["setting"], base)
        if "optimum" in arms:
            missed = own["over_optimum"]
            good = missed["saving_percent"] >= -2.0 * missed["saving_stderr_percent"]
            best = pairs(arms["optimum"]["setting"], base) or "the baseline"
            right, near = (
                good and own["kept"],
                f"{best}: {saving(missed, 1)}{'' if good else ', missed'}",
            )
        rows.append({**one, "own": own, "changed": changed, "near": near, "right": right})
    return rows


def packed(step: Told) -> str:
    """Return a step's seconds and sizes, and its result if that is not ok."""
    if "not_run" in step:
        return f"not run ({step['not_run']})"
    size = step.get("mb")
    sizes = size.values() if isinstance(size, dict) else [size]
    shown = [] if step["result"] == "ok" else [step["result"]]
    shown += [f"{step['seconds']:.0f} s"]
    shown += [f"{joined(sizes, '', ' + ')} MB"] if size else []
    shown += [step["again"]] if "again" in step else []
    shown += [f"{sum(tags.values())} {kind}" for kind, tags in step.get("lintian", {}).items()]
    return ", ".join(shown)


FOUND_AT, LEAST_SAVING = 0.95, 0.01
"""The share of its hold at which a study has found it; with less saving there is nothing to find."""
BASELINE_WINDOWS, LONG_WINDOWS = 2, 4.0
"""Before these have ended nothing is tried; with fewer than these to find it, little can be divided."""


def times_apart(runs: Sequence[Told]) -> Names:
    """Return each surface's pairs of one and four devices, and when both had found what they hold."""
    rows, both, longer = [], [], []
    for surface in grouped(runs, "surface"):
        by_seed = [{r["devices"]: r for r in s["own"]} for s in grouped(surface["own"], "seed")]
        worth = [p for p in by_seed if min(r["saving"] for r in p.values()) >= LEAST_SAVING]
        found = [(_found(p[1]), _found(p[4])) for p in worth]
        known = [(one, four) for one, four in found if one is not None and four is not None]
        both += known
        mean = [statistics.fmean(side) for side in zip(*known, strict=True)]
        longer += known if mean and mean[0] >= LONG_WINDOWS else []
        cells = (
            [f"{mean[0]:.1f}", f"{mean[1]:.1f}", f"{mean[1] / mean[0]:.2f}"] if mean else ["–"] * 3
        )
        rows.append({"surface": surface["surface"], "pairs_": by_seed, "cells": cells})
    return {
        "rows": rows,
        "both": both,
        "longer": longer,
        "all": [p for r in rows for p in r["pairs_"]],
    }


def _found(run: Told) -> float | None:
    """Return after how many windows of tuning a run had found what it comes to hold, or nearly."""
    at = (at for at, saved in run["found"] if saved >= FOUND_AT * run["saving"])
    return next((first - BASELINE_WINDOWS for first in at), None)


def over(pairs_: Sequence[Told], devices: int, key: str) -> float:
    """Return the mean of a key over the runs with so many devices."""
    return statistics.fmean(pair[devices][key] for pair in pairs_)


def time_ratio(known: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the ratio of the means, with its standard error over the pairs (Cochran, §6.4)."""
    one, four = (statistics.fmean(pair[n] for pair in known) for n in (0, 1))
    ratio = four / one
    squares = math.fsum((b - ratio * a) ** 2 for a, b in known)
    return ratio, math.sqrt(squares / (len(known) - 1) / len(known)) / one


JUDGED_AT = 8
"""After so many trials, or the next budget there is, windows above a limit are told by source."""
MOST_ABOVE = 0.05
"""An arm keeps its limits where no larger share of its windows is above one."""


def at_limits(told: Told) -> list[Told]:
    """Return what a contest came to at each limit."""
    kinds = ("rows", "pairs", "by_source", "generalisations")
    limits = unique(row["slack"] for row in told["rows"])
    every: list[Names] = [
        {k: [r for r in told[k] if r["slack"] == s] for k in kinds} | {"slack": s} for s in limits
    ]
    for one in every:
        one["budgets"] = unique(col(one["rows"], "budget"))
        one["shown"] = joined(one["budgets"], "", "/")
        one["judged"] = next((b for b in one["budgets"] if b >= JUDGED_AT), one["budgets"][-1])
    return every


def captured(rows: Sequence[Told], tuner: str, at: int) -> str:
    """Return what a tuner captured by budget, and its windows above the limit at one."""
    own = [row for row in rows if row["tuner"] == tuner]
    return f"{figures(col(own, 'captured'))} ({pick(own, budget=at)['windows_above']:.1f})"


def choices(choice: Told) -> list[Told]:
    """Return what was chosen without each source and is worth there, beside the choice on all."""
    lost = zip(choice["difference"], choice["difference_stderr"], strict=True)
    more = [
        ("mean", "–", figures(choice["left_out"]), figures(choice["left_out_windows_above"])),
        ("in-sample", f"`{choice['chosen']}`", figures(choice["in_sample"]),
         figures(choice["in_sample_windows_above"])),
        ("more in-sample", "–", joined((pm(d, e, "+.2f") for d, e in lost), "", " / "), "–"),
    ]  # fmt: skip
    own = [
        (s["source"], f"`{s['chosen']}`", figures(s["captured"]), figures(s["windows_above"]))
        for s in choice["sources"]
    ]
    return [
        dict(zip(("source", "chosen", "captured", "windows_above"), r, strict=True))
        for r in own + more
    ]


def figures(values: Iterable[float], digits: int = 2) -> str:
    """Return figures by budget."""
    return joined(values, f".{digits}f", " / ")


def have(told: Mapping[str, Told], key: str) -> list[Told]:
    """Return what there is under a key as the items of a part: one or none."""
    return [told[key]] if told.get(key) else []


UNITS = {"energy_j": "joules", "round_s": "seconds", "carbon_g": "grams"}
DIFFERENCE, POOLED = ("difference", "difference_stderr"), ("pooled", "pooled_stderr")
HELPERS: Names = {**vars(statistics), **vars(math), **globals()}


if __name__ == "__main__" and not sys.argv[1:]:
    for at, title, _, commits in measured():
        shown = ", ".join(commits) or "not run yet"
        sys.stdout.write(f"{title:22} {at.relative_to(DOCS)}: {shown}\n")
elif __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(Path, sys.argv[3:4]))
