"""Try the packages as they are installed: `python -m tests.release.check --output FILE.json`; as root.

In fresh roots of Debian 12 and 13: wheel and .deb, the main job, an upgrade from 0.2.0's database and from
a package of the version before, built from this tree; a downgrade, removing, purging, in a booted machine.
Steps that cannot run here are in the file with the reason. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bare_debian import bare, copied
from build_wheel import refuse_other_tags, released

from tests.bench.result import header
from tests.processes import run_to_end
from tests.release import jammy
from tests.release.booted import STEPS, Packages, tried_in_a_machine
from tests.release.gate import frozen, waits
from tests.systemd.machine import CannotRun

SOURCE = Path(__file__).parents[2]
KEPT = SOURCE / "build" / "deb"
FORMER = "0.0.9"
"""The former version; this tree is also packed under this number."""
NUMBERS = {"bookworm": 12, "trixie": 13}
LIMIT_S = 3600.0


class Results:
    """The results of the steps, in their order."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.alone = threading.Lock()
        self.header = header()
        self.steps: list[dict[str, Any]] = []

    def take(self, name: str, root: str, step: Callable[[], dict[str, Any]]) -> bool:
        """Run a step, record its result and seconds, and return whether it succeeded.

        A step that began earlier reports its own seconds.
        """
        began = time.monotonic()
        try:
            step_result: dict[str, Any] = {"result": "ok", **step()}
        except CannotRun as error:
            step_result = {"not_run": str(error)}
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            where = traceback.extract_tb(error.__traceback__)[-1].line
            step_result = {"result": "failed", "why": f"{where}: {error}"[-3000:]}
        self.note(name, root, {"seconds": round(time.monotonic() - began, 1), **step_result})
        return step_result.get("result") == "ok"

    def note(self, name: str, root: str, step_result: dict[str, Any]) -> None:
        step = {"step": name, "root": root, **step_result}
        with self.alone:
            self.steps.append(step)
            # Roots are tested in parallel.
            self.steps.sort(key=lambda each: str(each["root"]))
            print(json.dumps(step), flush=True)
            text = json.dumps({**self.header, "steps": self.steps}, indent=1)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(text + "\n")

    def not_run(self, name: str, root: str, why: str) -> None:
        self.note(name, root, {"not_run": why})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=SOURCE / "build/release-check.json")
    parser.add_argument("--releases", default="bookworm,trixie")
    parser.add_argument("--again", action="store_true", help="take the packages of the last run")
    given = parser.parse_args()
    results = Results(given.output)
    tags = run("git", "tag", "--points-at", "HEAD").split()
    if tags:
        results.take("tag equals version", "", lambda: tagged(tags))
    else:
        results.not_run("tag equals version", "", "this commit has no tag")
    page = (SOURCE / "docs/hardware-report.md").read_text()
    results.take("frozen", "", lambda: frozen(released(), tags, SOURCE / "tests/frozen"))
    results.take("1.0 waits for", "", lambda: {"missing": waits(released(), page)})
    with ThreadPoolExecutor() as beside:
        done = [beside.submit(whole, results, r, given.again) for r in given.releases.split(",")]
        results.take("agent's unit", "Ubuntu 22.04", lambda: jammy.tried(KEPT))
        for each in done:
            each.result()
    return 1 if any(step.get("result") == "failed" for step in results.steps) else 0


def tagged(tags: list[str]) -> dict[str, Any]:
    """Refuse a tag that differs from the version."""
    try:
        refuse_other_tags(released(), tags)
    except SystemExit as error:
        raise AssertionError(str(error)) from None
    return {}


def whole(results: Results, release: str, again: bool) -> None:
    """Run every step in one release of Debian."""
    root = f"Debian {NUMBERS[release]}"
    packages: dict[str, Packages] = {}
    base: list[Path] = []
    later = ("make root", *STEPS, "install wheel", "run from wheel", "first hour", "lintian")

    def build_both() -> dict[str, Any]:
        made = last_built if again else built
        packages["new"], packages["old"] = made(release), made(release, FORMER, "--quick")
        sizes = {"mb": {f.name: megabytes(f) for f in packages["new"]}}
        return sizes | ({"again": f"of {commit_of(packages['new'].agent)}"} if again else {})

    if not results.take("build .deb", root, build_both):
        for name in later:
            results.not_run(name, root, "there is no .deb")
        return
    with ThreadPoolExecutor() as beside:
        judging = beside.submit(judged, packages["new"])
        if results.take("make root", root, lambda: {"mb": prepared(release, base)}):
            tried_in_a_machine(results, root, base[0], packages["old"], packages["new"])
            wheel_steps(results, release, root, base[0])
            results.take("first hour", root, lambda: first_hour(release))
        else:
            for name in later[1:-1]:
                results.not_run(name, root, "there is no root to install into")
        results.take("lintian", root, judging.result)


def last_built(release: str, version: str = "", *_: str) -> Packages:
    """Return a pair of packages of the last run."""
    folder = KEPT / "tried" / (version or "new")
    files_by_kind = [
        sorted(folder.glob(f"{n}_*+deb{NUMBERS[release]}_*.deb"))
        for n in ("jouletune", "jouletune-tuner")
    ]
    assert all(files_by_kind), f"{folder} has no packages for {release}"
    return Packages(*(files[-1] for files in files_by_kind))


def commit_of(package: Path) -> str:
    """Return the commit that a package was built from."""
    tar = f"dpkg-deb --fsys-tarfile {package} | tar -xO --wildcards '*/tuner/commit.txt'"
    return run("sh", "-c", tar).strip()


def built(release: str, version: str = "", *options: str) -> Packages:
    """Build a pair of packages."""
    folder = KEPT / "tried" / (version or "new")
    command = [sys.executable, "deploy/build_deb.py", str(folder), "--release", release, *options]
    paths = run(*command, *(["--version", version] if version else [])).split()
    return Packages(*map(Path, paths))


def judged(packages: Packages) -> dict[str, Any]:
    """Check the packages by lintian: no errors except those in build_deb.py's OVERRIDES."""
    if shutil.which("lintian") is None:
        raise CannotRun("not installed: lintian (apt install lintian)")
    began = time.monotonic()
    command = ("lintian", "--allow-root", "--fail-on", "error", "--show-overrides")
    done = run_to_end([*command, *packages], timeout=LIMIT_S)
    lines = [words for line in done.stdout.splitlines() if len(words := line.split()) > 2]
    by_severity = {
        kind: Counter(words[2] for words in lines if words[0] == f"{letter}:")
        for kind, letter in (("errors", "E"), ("warnings", "W"), ("overridden", "O"))
    }
    # 2: there are findings, overridden ones included.
    assert done.returncode in (0, 2), done.stderr
    assert not by_severity["errors"], [
        line for line in done.stdout.splitlines() if line[:2] == "E:"
    ]
    by_kind = {kind: dict(tags) for kind, tags in by_severity.items()}
    return {"lintian": by_kind, "seconds": round(time.monotonic() - began, 1)}


def prepared(release: str, base: list[Path]) -> int:
    """Make a Debian with the packages' dependencies; return its size."""
    root = bare(release, KEPT)
    if release == "trixie":
        # Debian's package of torch.
        root = root.with_name(f"{root.name}-torch")
        if not root.exists():
            part = copied(bare(release, KEPT), root.with_suffix(".part"))
            (part / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
            apt = (
                "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-torch"
            )
            run("chroot", str(part), "sh", "-c", f"{apt} && apt-get clean")
            part.rename(root)
    base.append(root)
    return int(run("du", "-sm", str(root)).split()[0])


def wheel_steps(results: Results, release: str, root: str, base: Path) -> None:
    """Install the wheel with the locks, offline, and run every step of the smoke test."""
    copy = KEPT / "tried" / f"root-{release}"
    environment = copy / "environment"

    def install() -> dict[str, Any]:
        copied(base, copy)
        folder = copy / "wheels"
        folder.mkdir()
        run(sys.executable, "deploy/build_wheel.py", str(folder))
        (wheel,) = folder.glob("jouletune-*.whl")
        for name in wheels(release):
            run("cp", "-r", f"{name}/.", str(folder))
        pip = "/environment/bin/pip install --quiet --no-index --find-links /wheels"
        inside(copy, "python3 -m venv --system-site-packages /environment")
        inside(copy, f"{pip} --no-deps --require-hashes -r /wheels/lock.txt")
        inside(copy, f"{pip} --no-deps /wheels/{wheel.name}")
        return {"mb": int(run("du", "-sm", str(environment)).split()[0])}

    if results.take("install wheel", root, install):
        results.take("run from wheel", root, lambda: smoked(copy, "/environment/bin"))
    else:
        results.not_run("run from wheel", root, "it is not installed")
    run("rm", "-rf", "--one-file-system", str(copy))


def first_hour(release: str) -> dict[str, Any]:
    """Start the hardware kit in a bare root from its folder alone; without a GPU its exit status is 3."""
    (KEPT / "tried").mkdir(parents=True, exist_ok=True)
    copy = copied(bare(release, KEPT), KEPT / "tried" / f"kit-{release}")
    try:
        made = run(sys.executable, "-m", "tests.hardware.first_hour.build", str(copy / "kit"))
        command = "cd / && python3 /kit/first_hour.pyz --quick --output /report; test $? = 3"
        inside(copy, command)
        return {
            "kit": made.split(": ")[-1].strip(),
            "report": (copy / "report/first-hour.md").exists(),
        }
    finally:
        run("rm", "-rf", "--one-file-system", str(copy))


def wheels(release: str) -> list[str]:
    """Return the folders of wheels that the packages were built from; the tuner's holds the agent's."""
    python = {"bookworm": "3.11", "trixie": "3.13"}[release]
    folders = sorted(KEPT.glob(f"wheels-{python}-*"), key=lambda f: len(list(f.iterdir())))
    assert folders, f"no wheels of Python {python}"
    return [str(folders[-1])]


def inside(root: Path, command: str) -> str:
    """Run a command in a root that is not booted, without a network."""
    nspawn = ("systemd-nspawn", "-q", "-D", str(root), "--register=no", "--keep-unit", "--as-pid2")
    return run(*nspawn, "--private-network", "--pipe", "sh", "-c", command)


def smoked(root: Path, binaries: str) -> dict[str, Any]:
    """Run the steps of the smoke test in a root."""
    trial = root / "smoke"
    trial.mkdir()
    for file in ("tests/release/smoke.py", "tests/frozen/0.2.0/sqlite.sql"):
        run("cp", file, str(trial))
    (noted,) = root.glob("environment/lib/python3.*/site-packages/tuner/commit.txt")
    commit = noted.read_text().strip()
    output = inside(
        root, f"python3 /smoke/smoke.py {binaries} /smoke/work /smoke/sqlite.sql {commit}"
    )
    return {"steps": json.loads(output.splitlines()[-1])}


def megabytes(file: Path) -> float:
    return round(file.stat().st_size / 1e6, 1)


def run(*command: str) -> str:
    """Run a command that must not fail, and return its output."""
    done = run_to_end(command, cwd=SOURCE, timeout=LIMIT_S)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
