"""The size of the repository by parts, in tests/house.toml: `python -m tests.ledger [added|rises]`.

Without an argument it counts the tree, writes the file and prints the rises since the last commit. `added`
only prints that. `rises` prints each commit since the last tag that let an entry rise, with its reason.
A test fails for a commit that lets an entry rise and does not name the entry in its body.
Every file that git tracks, or would track, belongs to exactly one entry:

- `product`: lines of code in Python files of tuner, agents, policies and db, by second-level folders, and
  `generated_lines` if a test compares a module with its generator;
- `tests`: the same for the tests; unit tests by the rooms that they mirror;
- `documentation`: bytes of pages, `generated` if a test compares a page with its generator;
- `other`: nonblank lines of all other files; for Python lines of code. A picture has none. A symbolic
link has no size; its target has one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lines_of_code import lines_of_code

ROOT: Path = Path(__file__).parents[1]
FILE = "tests/house.toml"
SECONDS = "build/make-test.seconds"
"""The file to which `make test` writes its seconds."""
PRODUCT = ("tuner", "agents", "policies", "db")
GENERATED: tuple[str, ...] = ("docs/api/http.md", "docs/measurement.md", "docs/promises.md")
GENERATED += ("tuner/client/blocking.py", "tuner/client/request.py", "tuner/verbs/awaited.py")
"""Pages and modules that a test compares with their generator."""
GOALS = {
    "product_lines": 45_000,
    "tests_lines": 50_000,
    "root_process_lines": 1_550,
    "files_a_room": 20,
    "lines_a_file": 400,
    "documentation_by_hand_bytes": 180_000,
    "make_test_seconds": 720,
}
SECTIONS = ("product", "tests", "documentation", "root_process", "longest_file", "other")
UNHELD = ("goals", "longest_file")
"""Sections that the test does not compare: they follow from the entries, or from a clock."""
SLACK = {"lines": 50, "generated_lines": 50, "now": 50, "by_hand": 4_000, "generated": 4_000}
"""The largest distance of a count below its entry; 50 lines of a page have about 4,000 bytes."""
HEAD = """\
# The size of each part, and the goals. Written by `make ledger`, which also settles a merge conflict in it.
# Where an entry rises, the commit's message gives the reason. tests/ledger.py describes the entries.
"""

Counts = dict[tuple[str, str, str], int]
"""Counts by section, entry and unit."""


def git(root: Path, *arguments: str) -> str:
    """Return the output of git; empty if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return "" if done.returncode else done.stdout


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each file's name and text; empty for a symbolic link and a picture."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in sorted({*listed.split("\0")} - {"", FILE}):
        path = root / name
        if path.is_symlink():
            yield name, ""
        elif path.exists():
            text = path.read_bytes().decode(errors="replace")
            yield name, "" if "\0" in text else text


def entry(name: str) -> tuple[str, str]:
    """Return the section and the entry of a file."""
    top, *below = name.split("/")
    mirrored = below[:1] == ["unit"] and top == "tests"
    folder = "/".join([top, *below[:-1]][: 4 if mirrored else 2])
    if name.endswith(".md"):
        return "documentation", folder if top == "docs" else name
    if name.endswith(".py") and top in (*PRODUCT, "tests"):
        return "tests" if top == "tests" else "product", folder
    return "other", folder if below else "."


def root_process(root: Path, driver: str) -> set[str]:
    """Return the files that the root process imports with a driver, those inside functions too."""
    modules = ["agents.actuator.main", f"agents.devices.{driver}.knobs"]
    reached: set[str] = set()
    while modules:
        module = modules.pop()
        place = module.replace(".", "/")
        for name in (f"{place}.py", f"{place}/__init__.py"):
            if module.split(".")[0] not in PRODUCT or name in reached or not (root / name).exists():
                continue
            reached.add(name)
            modules.append(module.rpartition(".")[0])
            for node in ast.walk(ast.parse((root / name).read_text())):
                if isinstance(node, ast.Import):
                    modules += [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    modules += [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
    return reached


def counted(root: Path) -> Counts:
    """Count every file, the root process with each driver, and the counts with a goal."""
    counts: Counter[tuple[str, str, str]] = Counter()
    lines: dict[str, int] = {}
    longest = (0, "")
    for name, text in texts(root):
        section, key = entry(name)
        if section == "documentation":
            made = "generated" if name in GENERATED else "by_hand"
            counts[section, key, made] += len(text.encode())
            continue
        filled = sum(1 for row in text.split("\n") if row.strip())
        lines[name] = lines_of_code(text) if name.endswith(".py") else filled
        counts[section, key, "generated_lines" if name in GENERATED else "lines"] += lines[name]
        if section == "product":
            counts[section, key, "files"] += 1
            longest = max(longest, (len(text.splitlines()), name))
    for knobs in sorted(root.glob("agents/devices/*/knobs.py")):
        driver = knobs.parent.name
        if driver != "fake":
            reached = root_process(root, driver)
            counts["root_process", driver, "lines"] = sum(lines[name] for name in reached)
    counts["longest_file", longest[1], "lines"] = longest[0]
    ordered = sorted(counts, key=lambda place: (SECTIONS.index(place[0]), place[1]))
    return {**_goals(root, counts), **{place: counts[place] for place in ordered}}


def _goals(root: Path, counts: Counts) -> Counts:
    def of(section: str, measure: str) -> list[int]:
        return [n for (s, _, m), n in counts.items() if (s, m) == (section, measure)]

    seconds = root / SECONDS
    kept = read(git(root, "show", f"HEAD:{FILE}")).get(("goals", "make_test_seconds", "now"), 0)
    now = {
        "product_lines": sum(of("product", "lines")),
        "tests_lines": sum(of("tests", "lines")),
        "root_process_lines": max(of("root_process", "lines"), default=0),
        "files_a_room": max(of("product", "files"), default=0),
        "lines_a_file": max(of("longest_file", "lines")),
        "documentation_by_hand_bytes": sum(of("documentation", "by_hand")),
        "make_test_seconds": int(seconds.read_text()) if seconds.exists() else kept,
    }
    both = {name: {"now": now[name], "goal": goal} for name, goal in GOALS.items()}
    return {("goals", name, which): n for name, row in both.items() for which, n in row.items()}


def read(text: str) -> Counts:
    """Return the entries of a ledger; empty if it cannot be read."""
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
    return {
        (section, key, measure): count
        for section, rows in sections.items()
        for key, row in rows.items()
        for measure, count in row.items()
    }


def written(counts: Counts) -> str:
    """Return a ledger's text."""
    rows: dict[str, dict[str, list[str]]] = {}
    for (section, key, measure), count in counts.items():
        rows.setdefault(section, {}).setdefault(key, []).append(f"{measure} = {count}")
    return HEAD + "".join(
        f"\n[{section}]\n" + "".join(f'"{k}" = {{ {", ".join(row)} }}\n' for k, row in keys.items())
        for section, keys in rows.items()
    )


def wrong(counts: Counts, ledger: Counts) -> list[str]:
    """Return each count that is above its entry or far below it."""
    return [
        f"{section} {key}: {count} {measure}, the ledger says {stated}; run `make ledger`"
        for section, key, measure in sorted(counts.keys() | ledger.keys())
        if section not in UNHELD or key == "lines_a_file"
        for count in [counts.get((section, key, measure), 0)]
        for stated in [ledger.get((section, key, measure), 0)]
        if not stated - SLACK.get(measure, 0) <= count <= stated
    ]


def risen(before: Mapping[tuple[str, str, str], int], after: Counts) -> list[str]:
    """Return a row for each entry that is larger than before."""
    return [
        f"  {' '.join(place)}: {before.get(place, 0)} → {count} (+{count - before.get(place, 0)})"
        for place, count in after.items()
        if count > before.get(place, 0) and place[0] != "longest_file"
    ]


def rises(root: Path) -> Iterator[str]:
    """Yield each commit since the last tag that let an entry rise: its subject, the rises, its body."""
    tag = git(root, "describe", "--tags", "--abbrev=0").strip()
    yield f"rises since {tag or 'the first commit, as there is no tag'}:"
    commits = git(root, "log", "--format=%H", *([f"{tag}.."] if tag else []), "--", FILE)
    for commit in commits.split():
        before, after = (read(git(root, "show", f"{at}:{FILE}")) for at in (f"{commit}^", commit))
        if before and (rows := risen(before, after)):
            yield "\n".join(
                [git(root, "log", "-1", "--format=%n%h %s%n%n%b", commit).rstrip(), *rows]
            )


def unnamed(root: Path) -> list[str]:
    """Return each entry that rose in a commit whose body does not name it, since this rule exists."""
    since = git(root, "log", "--reverse", "--format=%H", "-Sdef unnamed", "--", __file__).split()
    commits = git(root, "log", "--format=%H", *([f"{since[0]}.."] if since else []), "--", FILE)
    found = []
    for commit in commits.split():
        before, after = (read(git(root, "show", f"{at}:{FILE}")) for at in (f"{commit}^", commit))
        body = git(root, "log", "-1", "--format=%b", commit)
        rose = [place for place, count in after.items() if before and count > before.get(place, 0)]
        keys = sorted({key for section, key, _ in rose if section not in UNHELD})
        named = {k for k in keys if re.search(rf"(?<![\w/.-]){re.escape(k)}(?![\w/-])", body)}
        found += [f"{commit[:8]} does not name {key}" for key in keys if key not in named]
    return found


def table(counts: Counts) -> str:
    """Return all counts as a table, those with a goal at its end."""
    rows = [(f"{s}  {key}", f"{n:,} {m}") for (s, key, m), n in counts.items() if s != "goals"]
    now = {key: n for (s, key, m), n in counts.items() if (s, m) == ("goals", "now")}
    rows += [(name, f"now {now[name]:,}, goal {goal:,}") for name, goal in GOALS.items()]
    return "\n".join(f"{name:<60}{count:>30}" for name, count in rows)


def main(what: str = "") -> None:
    """Print the requested counts; without an argument, also write the ledger."""
    if what == "rises":
        print("\n".join(rises(ROOT)))
        return
    counts = counted(ROOT)
    rows = risen(read(git(ROOT, "show", f"HEAD:{FILE}")), counts)
    if not what:
        (ROOT / FILE).write_text(written(counts))
    print("\n".join(["rises since the last commit:", *rows] if rows else ["no entry rises"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
