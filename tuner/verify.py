"""Check an evidence archive of jouletune: `python3 -I verify.py FILE`. It needs Python alone.

It detects damage and edited numbers, but not an archive invented as a whole. Take it from a release.
"""

import hashlib
import json
import math
import statistics
import sys
import zipfile
from itertools import pairwise
from typing import Any

Estimate = tuple[float, float, float, float, float]  # mean, error, n, one-sided 95 % bounds
Pools = dict[str, Estimate]
Json = Any
PRIOR, GAP_S, FACTOR, ABSENT = 3, 300.0, 3.0, -1.0  # windows, s, a factor, no reading
MOST = {"evidence.json": 2**26, "SHA256SUMS": 2**22}
NOT = "That the producer measured what it wrote cannot be proven from its archive."
UNITS = {"J": "µJ mJ J kJ MJ", "W": "mW W kW", "ms": "µs ms s", "s": "µs ms s"}
TAILS = {"latency_p50_ms": 0.50, "latency_p99_ms": 0.99}
ENERGY, POWER = ("energy_j", "items", 1.0), ("energy_j", "seconds", 1.0)
CPU, RATE = ("cpu_s", "items", 1000.0), ("items", "seconds", 1.0)
RATIOS = {"energy_j": ENERGY, "power_w": POWER, "cpu_time_ms": CPU, "throughput_per_s": RATE}


def fitting(unit: str, mean: float) -> tuple[str, float]:
    """Return the unit that fits the size of a number, and its size in the given unit."""
    steps = UNITS[unit].split() if unit in UNITS else [unit.replace("1/s", "/s")]
    own = steps.index(unit) if unit in UNITS else 0
    sizes = [(step, 10.0 ** (3 * (k - own))) for k, step in enumerate(steps)]
    fits = [one for one in sizes if abs(mean) >= one[1]] or [sizes[0]]
    return fits[-1] if mean else sizes[own]


def amount(unit: str, mean: float, error: float = 0.0) -> str:
    """Return a number as it is printed: to two digits of its error, else to four."""
    unit, size = fitting(unit, mean)
    value, doubt = mean / size, error / size if error > 1e-9 * abs(mean) else 0.0
    of, digits = (doubt, 1) if doubt > 0.0 else (abs(value), 3)
    places = min(6, max(0, digits - math.floor(math.log10(of)))) if of else 0
    text = f"{value:,.{places}f}" + (f" ± {doubt:,.{places}f}" if doubt > 0.0 else "")
    return text if unit in ("", "1") else f"{text} {unit}"


def percent(share: float, error: float = 0.0) -> str:
    """Return a share as a percentage."""
    doubt = f" ± {100 * error:.1f}" if error > 1e-9 else ""
    return f"{round(100 * share, 1) + 0.0:.1f}{doubt} %"


def duration(seconds: float) -> str:
    """Return a time in the largest unit that is not longer than it."""
    sizes = (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
    unit, size = next((one for one in sizes if seconds >= one[1]), sizes[-1])
    return f"{seconds / size:.3g} {unit}"


def saved(joules: float, error: float, whole: float | None, seconds: float, count: int) -> str:
    """Return a saving by holding, as a part of what the baseline would have used."""
    part = f", {percent(joules / whole)} of the baseline" if whole else ""
    text = f"{amount('J', joules, error)}, {joules / 3.6e6:.3g} kWh{part}"
    return f"{text}; {duration(seconds)} of holding, {count} windows"


def student(freedom: int) -> float:
    """Return the one-sided 95 % point of Student's t (Abramowitz and Stegun 26.7.5)."""
    if freedom < 3:
        return (math.inf, 6.3138, 2.92)[freedom]
    z = 1.6448536269514722
    first, second = (z**3 + z) / 4.0, (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / freedom + second / freedom**2 + third / freedom**3


def ratio(steps: list[tuple[float, float]], scale: float) -> Estimate | None:
    """Return a sum over a sum, with the ratio estimator's error over the batches (Cochran, §6.4)."""
    count, below = len(steps), math.fsum(d for _, d in steps)
    if count < 3 or below <= 0.0:
        return None
    mean = math.fsum(n for n, _ in steps) / below
    squares = math.fsum((n - mean * d) ** 2 for n, d in steps)
    error = math.sqrt(squares * count / (count - 1)) / below
    reach = student(count - 1) * error
    return scale * mean, scale * error, count, scale * (mean - reach), scale * (mean + reach)


def mass(n: int, p: float, k: int) -> float:
    """Return the probability of k successes in n draws."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))


def quantile(each: list[float], q: float, together: float) -> Estimate:
    """Return a quantile by order statistics; `together` samples count as one."""
    each, n = sorted(each), max(1, int(len(each) / max(1.0, together)))
    share, spread = len(each) / n, math.sqrt(n * q * (1.0 - q))
    upper, lower, total = None, None, 0.0
    for k in range(max(0, math.floor(n * q - 6.0 * spread - 6.0)), n + 1):
        lower = k - 1 if total <= 0.05 else lower
        total += mass(n, q, k)
        if upper is None and total >= 0.95 and k < n:
            upper = k

    def at(rank: float) -> float:
        return each[min(len(each), max(1, math.ceil(rank - 1e-9))) - 1]

    error = (at(share * (n * q + spread)) - at(share * (n * q - spread))) / 2.0
    low = -math.inf if lower is None or lower < 0 else at(share * lower + 1.0)
    high = math.inf if upper is None else at(share * (upper + 1.0))
    return at(len(each) * q), error, n, low, high


def pooled(parts: list[Estimate], tail: bool) -> Estimate:
    """Return several windows as one: by their precision, those of a tail by their requests."""
    if len(parts) == 1:
        return parts[0]
    n, free = math.fsum(e[2] for e in parts), len(parts) - 1
    least = min(e[1] for e in parts)
    pairs = [(e[2] if tail else (least / e[1]) ** 2 if least else 1.0, e[0]) for e in parts]
    total = math.fsum(w for w, _ in pairs)
    mean = math.fsum(w * m for w, m in pairs) / total
    scatter = math.fsum(w * (m - mean) ** 2 for w, m in pairs) / total
    if tail:  # the number of independent bounds that fail together in at most 5 % of cases
        left = [1.0 - math.fsum(mass(free + 1, 0.05, j) for j in range(k)) for k in range(free + 1)]
        safe = sum(above > 0.05 for above in left)
        within = math.sqrt(math.fsum((e[2] * e[1]) ** 2 for e in parts)) / n
        high, low = sorted(e[4] for e in parts)[safe - 1], sorted(e[3] for e in parts)[-safe]
        return mean, max(within, math.sqrt(scatter / free)), n, min(low, mean), max(high, mean)
    implied = least**2 / total
    error = math.sqrt(max((PRIOR * implied + scatter) / (PRIOR + free), implied))
    reach = student(PRIOR + free) * error
    low = mean - reach if any(math.isfinite(e[3]) for e in parts) else -math.inf
    high = mean + reach if any(math.isfinite(e[4]) for e in parts) else math.inf
    return mean, error, n, low, high


def compared(study: Json, base: Pools, best: Pools, limits: list[Json]) -> dict[str, str]:
    """Return the figures of baseline and best setting: each metric, the changes, and the limits."""
    units, text = study["units"], dict[str, str]()
    for name, pool in (("baseline", base), ("best", best)):
        text |= {f"{name} {n}": amount(units[n], *e[:2]) for n, e in pool.items()}
        ends = [(n, op, pool[n][4 if op == "<=" else 3]) for n, op, _ in limits if n in pool]
        text |= {f"{name} {n} {op}": amount(units[n], x) for n, op, x in ends if math.isfinite(x)}
    for n in base.keys() & best.keys():
        (old, doubt), (new, error) = base[n][:2], best[n][:2]
        share = old > 0.0 and new >= 0.0
        by, part = (old, new / old) if share else (1.0, 1.0)
        mean, error = (new - old) / by, math.hypot(error / by, part * (doubt / by))
        size = percent(mean, error) if share else amount(units[n], mean, error)
        text[f"change {n}"] = f"{'+' if mean > 0 else ''}{size}"
        text |= {f"moved {n}": f"{abs(100 * mean):.1f} %"} if share else {}
        text |= {"saving": size.removeprefix("-")} if n == study["metric"] else {}
    return text | {f"limit {n} {op}": amount(units[n], limit) for n, op, limit in limits}


def cost(seconds: float, joules: float | None, watts: float | None) -> dict[str, str]:
    """Return the figures of exploring: its time and energy, the power saved, and the payback."""
    text = {"exploring time": duration(seconds)}
    text |= {} if joules is None else {"explored": amount("J", joules)}
    text |= {} if watts is None else {"saving power": amount("W", watts)}
    if joules is not None and watts is not None and watts > 0.0:
        text["payback"] = duration(joules / watts)
    return text


class Archive:
    """One archive: `wrong` has its contradictions, `refused` its windows, `beyond` figures not computed."""

    def __init__(self, path: str) -> None:
        self.wrong, self.refused, self.beyond = list[str](), list[str](), list[str]()
        self.same, self.say = 0, self.wrong.append
        try:
            self.open(path)
        except Exception as error:  # noqa: BLE001  a damaged file raises anything
            self.say(f"damaged: {type(error).__name__}: {error}")

    def open(self, path: str) -> None:
        """Read the files, compare their digests, and check their content."""
        self.bundle = zipfile.ZipFile(path)
        sizes = {one.filename: one.file_size for one in self.bundle.infolist()}
        large = [n for n, size in sizes.items() if size > MOST.get(n, 2**19)]
        if large or len(sizes) != len(self.bundle.infolist()):
            raise ValueError(f"two files have one name, or a file is too large: {large[:1]}")
        listed = set(self.bundle.read("SHA256SUMS").decode().splitlines())
        files = {n: hashlib.sha256(self.bundle.read(n)) for n in sizes if n != "SHA256SUMS"}
        for line in sorted(listed ^ {f"{sha.hexdigest()}  {n}" for n, sha in files.items()}):
            self.say(f"digest: {line[66:]} is not the file of the digest {line[:12]}")
        self.doc = doc = json.loads(self.bundle.read("evidence.json"), parse_constant=int)  # no NaN
        self.study, self.windows = doc["study"], {one["number"]: one for one in doc["windows"]}
        self.order()
        for window in doc["windows"]:
            self.window(window, f"trial {window['number']}")
        self.beyond += [f"{name}: {why}" for name, why in doc["beyond"].items()]
        computed, printed = self.figures(), doc["figures"]
        for name in sorted(computed.keys() - doc["beyond"].keys() | printed.keys()):
            if (own := computed.get(name)) != (text := printed.get(name)):
                self.say(f"figure: {name} is {text}; the windows give {own}")
        self.same = sum(computed.get(name) == text for name, text in printed.items())

    def order(self) -> None:
        """Check that trials have no gaps, begin in turn and in their phase, and alternate."""
        turns, needed = self.doc["revisions"], {*self.study["needed"]}
        if [w["number"] for w in self.doc["windows"]] != [*range(1, self.study["trials"] + 1)]:
            self.say(f"gap: trials are not numbered from 1 to {self.study['trials']}")
        done, run, before = list[Json](), None, 0.0
        for window in self.doc["windows"]:
            name, began = f"trial {window['number']}", window["started_at"]
            window["shown"] = {n: tuple(map(float, e)) for n, e in window["estimates"].items()}
            passed = [turn for turn in turns if turn["at"] <= began]
            phases = [turn["phase"] for turn in passed if turn["at"] == passed[-1]["at"]]
            if window["phase"] not in [*phases, *self.doc["beyond"]]:  # listed as not computed
                self.say(f"order: {name} is not of the phase in force, {window['phase']}")
            if began < before:
                self.say(f"order: {name} began before the one before it, or its end")
            before = began if window["alone"] else max(began, window["ended_at"] or began)
            window["whole"] = window["state"] == "completed" and needed <= window["shown"].keys()
            if window["phase"] != "confirming" or not self.study["alternates"]:
                continue
            same = [a["phase"] != b["phase"] for a, b in pairwise(passed)].count(True)
            if run != (same, window["context"]):
                done, run = [], (same, window["context"])
            rests, last = window["setting"] == self.study["baseline"], done[-1:]
            again = done.count(window["setting"]) >= 2 and not rests
            if rests == (last == [self.study["baseline"]]) and not again:
                self.say(f"order: {name} is out of turn: baseline and setting alternate")
            done += [window["setting"]] * window["whole"]

    def window(self, window: Json, name: str) -> None:
        """Check that a window's estimates fit each other, and find its raw samples."""
        shown, study = window["shown"], self.study
        for metric, (mean, error, n, low, high) in shown.items():
            least = min(error, n - 1, window["seconds"], window["overhead_s"])
            if not (math.isfinite(mean + error + n) and low <= mean <= high and least >= 0.0):
                self.say(f"window: {metric} of {name} is not within its bounds")
        self.refused += [f"{name}: implausible, so not in the bill"] * window["implausible"]
        energy, power = (shown.get(study["names"][n]) for n in ("energy", "power"))
        sources = [window["origins"].get(study["names"][n]) for n in ("energy", "power")]
        both, alike = bool(energy and power), sources[0] == sources[1]
        self.beyond += ["energy against power × time, of different origins"] * (both and not alike)
        if energy and power and alike and not window["implausible"]:
            joules, by_time = energy[0] * window["completed"], power[0] * window["seconds"]
            if joules and not by_time / FACTOR <= joules <= by_time * FACTOR:
                self.say(f"energy: {name}: {joules:.4g} J, by its power {by_time:.4g} J")
        files = window["samples"]
        if not len({*files}) == len(files) <= study["devices"]:
            self.say(f"window: {name} has samples of too many devices")
        for raw in (json.loads(self.bundle.read(f), parse_constant=int) for f in files):
            self.readings(window, name, raw)
            if len(files) == 1:
                self.samples(window, name, raw)
        self.beyond += ["each window's sum over several devices"] * (len(files) > 1)
        if not files and shown and window["phase"] != "tuning":
            self.refused.append(f"{name}: it has no raw samples")

    def readings(self, window: Json, name: str, raw: Json) -> None:
        """Check that readings have no gap, that counters never go back, and that two clocks agree."""
        steps = [b - a for a, b in pairwise([0.0, *raw["seconds"]])]
        self.beyond += ["gaps between the runs of a program"] * bool(raw["runs"])
        if not raw["runs"] and max(steps) > FACTOR * statistics.median(steps) + 2.0:
            self.say(f"gap: {name} was not read for {max(steps):.3g} s")
        clock, wall = (raw[key][1] - raw[key][0] for key in ("clock_s", "wall_s"))
        real_time = {o for o, _ in window["origins"].values()} <= {"measured", "estimated"}
        if abs(clock - raw["seconds"][-1]) > 1e-3 or (real_time and not -1 <= wall - clock <= 60):
            self.say(f"clock: the two clocks of {name} disagree")
        for total, values in raw["totals"].items():
            growth = [0.0, *(v for v in values if v != ABSENT)]
            if len(values) != len(steps) or min(steps) <= 0.0 or growth != sorted(growth):
                self.say(f"counter: {total} of {name} goes back, or lacks readings")

    def samples(self, window: Json, name: str, raw: Json) -> None:
        """Check what follows from the samples of a window on one device."""
        seconds, totals, shown, say = raw["seconds"], raw["totals"], window["shown"], self.say
        away = raw["wall_s"][0] - window["began"]
        if max(abs(away), abs(seconds[-1] - window["seconds"])) > 1e-3:
            say(f"gap: the readings of {name} are not those of its time")
        if "items" in totals and int(max(totals["items"])) != window["completed"]:
            say(f"items: {name} has {window['completed']} items, its samples another number")
        made, series = dict[str, Estimate | None](), {**totals, "seconds": seconds}
        for metric, (total, per, scale) in {**raw["ratios"], **RATIOS}.items():
            pairs = [(0.0, 0.0), *zip(series.get(total, []), series.get(per, []), strict=False)]
            rows = [row for row in pairs if ABSENT not in row]
            (top, below), (mean, error) = rows[-1], shown.get(metric, (0.0, math.inf))[:2]
            full, counted = rows == pairs and below > 0.0, scale * top / (below or 1.0)
            if metric in raw["ratios"]:
                made[metric] = ratio([(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(rows)], scale)
            elif full and abs(mean - counted) > max(5.0 * error, 0.1 * counted):
                say(f"window: {metric} of {name} is {mean:.4g}, counted {counted:.4g}")
        if (latencies := raw["latencies"]) and (each := latencies["each_ms"]):
            for metric in TAILS.keys() & shown.keys():
                made[metric] = quantile(each, TAILS[metric], latencies["together"])
        for metric in sorted(made.keys() | shown.keys()):
            stored, own = shown.get(metric, ()), made.get(metric) or ()
            near = [math.isclose(a, b, abs_tol=1e-12) for a, b in zip(stored, own, strict=False)]
            if metric not in made:
                self.beyond.append(f"each window's {metric}: its meter finished it, or has buckets")
            elif not near or not all(near):
                say(f"window: {metric} of {name} is {stored}; its samples give {own}")

    def pool(self, name: str) -> Pools:
        """Return the estimates of the windows that the archive lists for a purpose."""
        study, own = self.study, [self.windows[n] for n in sorted({*self.doc["pools"][name]})]
        setting = study["best" if name == "best" else "baseline"]
        for window in own:
            if window["setting"] != setting or window["state"] not in ("completed", "inconclusive"):
                self.say(f"pool: trial {window['number']} cannot be in {name}")
        shown: list[Pools] = [window["shown"] for window in own]
        names, tails = {n for one in shown for n in one}, {*study["tails"], *TAILS}
        return {n: pooled([e[n] for e in shown if n in e], n in tails) for n in sorted(names)}

    def figures(self) -> dict[str, str]:
        """Return every figure that follows from the windows, as the report prints it, by name."""
        study, pools = self.study, self.doc["pools"]
        base, best, solid = (self.pool(name) for name in ("baseline", "best", "solid"))
        past = [turn for turn in self.doc["revisions"] if turn["phase"] != "paused"]
        new = [0.0, *(b["at"] for a, b in pairwise(past) if b["phase"] == "baseline" != a["phase"])]
        for n, one in self.windows.items() if study["alternates"] and base and best else ():
            name = "best" if one["setting"] == study["best"] else "baseline"
            own = one["phase"] == "confirming" and one["setting"] == study[name] and one["whole"]
            inside = name == "best" or min(pools[name]) < n < max(pools["best"])
            if own and inside and one["started_at"] > new[-1] and n not in pools[name]:
                self.say(f"pool: trial {n} confirmed {name}, but is not in its pool")
        for last, one in pairwise([*self.doc["held"][:1], *self.doc["held"]]):
            own, passed, claim = one["seconds"], one["began"] - last["began"], one.get("speaks_s")
            since = min(passed, GAP_S) if claim is None else passed + own - last["seconds"]
            claim = one["covers_s"] if claim is None or one is last else claim
            if not 0.0 <= one["covers_s"] <= claim + 1e-3 <= max(own, since) + 2e-3:
                self.say(f"pool: the time of the window held at {one['began']:.0f}")
        self.beyond += ["held windows: items, energy, load; their and the limits' baseline windows"]
        self.beyond += ["the order of confirming windows"] * (not study["alternates"])
        sure = all(n in solid and solid[n][0] for n, _, _, by in study["constraints"] if by)
        limits = [
            (n, op, x if not by else (x if solid[n][0] > 0.0 else 2.0 - x) * solid[n][0])
            for n, op, x, by in (study["constraints"] if sure else ())
        ]
        return {**compared(study, base, best, limits), **self.bill(base, best)}

    def bill(self, base: Pools, best: Pools) -> dict[str, str]:
        """Return the time and energy of exploring, the payback, and the savings by holding."""
        study, share = self.study, self.study["share"]
        energy, power, rate = (study["names"][n] for n in ("energy", "power", "capacity"))
        credible = [w for w in self.doc["windows"] if w["shown"] and not w["implausible"]]
        tried = [w for w in credible if w["phase"] != "holding"]
        spent = [w["seconds"] + w["overhead_s"] for w in tried]
        if energy not in base or not tried or any(power not in w["shown"] for w in tried):
            return cost(math.fsum(spent), None, None)
        parts = [w["shown"][power][0] / (study["devices"] if w["alone"] else 1) for w in tried]
        drawn, watts = [w * s for w, s in zip(parts, spent, strict=True)], None
        if energy in best and rate in base:
            watts = (base[energy][0] - best[energy][0]) * base[rate][0] * share
        text = cost(math.fsum(spent), math.fsum(drawn) * share, watts)
        for period, since in self.doc["periods"].items():
            text |= self.saved(f"saved {period}", since)
        return text

    def saved(self, name: str, since: float) -> dict[str, str]:
        """Return the saving of a period: its sum, error, time, windows, and part of the baseline."""
        metric, share = self.study["names"]["energy"], self.study["share"]
        joules, whole, seconds, count = 0.0, 0.0, 0.0, 0
        noise, basis, between = list[float](), dict[str, float](), dict[tuple[str, str], float]()
        for held in self.doc["held"]:
            if held["began"] < since or not held["basis"]:
                continue
            items = held["completed"] / held["seconds"] * held["covers_s"]
            levels = [(k.split("~")[0], w, self.pool(k)[metric]) for k, w in held["basis"]]
            level = math.fsum(w * e[0] for _, w, e in levels)
            whole, seconds, count = whole + items * level, seconds + held["covers_s"], count + 1
            if held["setting"] == self.study["baseline"]:
                continue
            if abs(math.fsum(w for k, w, _ in levels if k != "best") - 1.0) > 1e-9:
                self.say(f"pool: the baseline of the window held at {held['began']:.0f}")
            joules -= items * (held["mean"] - level)
            noise.append(items * held["stderr"])
            for k, weight, estimate in levels:
                basis[k] = basis.get(k, 0.0) + items * weight * estimate[1]
            if len(levels) == 2:
                step, pair = levels[1][2][0] - levels[0][2][0], (levels[0][0], levels[1][0])
                between[pair] = between.get(pair, 0.0) + items * step
        error = math.hypot(*noise, *basis.values(), *(j / 12.0**0.5 for j in between.values()))
        text = saved(joules * share, error * share, whole * share, seconds, count)
        return {name: text} if count else {}


def main(arguments: list[str]) -> int:
    """Print the results; return 0 if nothing contradicts, 1 if something does, 2 for a wrong call."""
    if len(arguments) != 1:
        sys.stdout.write(__doc__ or "")
        return 2
    read = Archive(arguments[0])
    lines = [f"CONTRADICTION: {x}" for x in read.wrong] + [f"refused: {x}" for x in read.refused]
    lines += [f"not computed: {x}" for x in read.beyond]
    lines += [f"{read.same} figures follow from the windows; {len(read.wrong)} contradictions."]
    for line in dict.fromkeys([*lines, NOT]):
        sys.stdout.write("".join(c if c.isprintable() else "?" for c in line) + "\n")
    return 1 if read.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
