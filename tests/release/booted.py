"""The packages in a booted Debian with a held fake GPU: install, upgrade, refusals, removal, purge."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.frozen.content import HELD
from tests.release import former
from tests.systemd.machine import SOURCE, CannotRun, booted, why_not
from tests.systemd.test_services import ACTUATOR, DESK, ORIGINAL, SERVICES, Site, system_files

DATABASE = "/var/lib/jouletune-tuner/jouletune.sqlite"
SCHEMA = "print(database.execute('SELECT version_num FROM alembic_version').fetchone()[0])"
CHANGED = ("alembic_version", "posteriors", "budget_members", "deliveries")
"""Tables that the first start changes: the schema; no longer used; computed by the divider; deliveries to
destinations that the configuration does not have."""
LOST = """
database.execute("ATTACH '{0}' AS former")
tables = database.execute("SELECT name FROM former.sqlite_master WHERE type = 'table'").fetchall()
for table in {{name for (name,) in tables}} - {{*{1}}}:
    columns = ", ".join(row[1] for row in database.execute(f"PRAGMA former.table_info({{table}})"))
    rows = f"SELECT {{columns}} FROM former.{{table}} EXCEPT SELECT {{columns}} FROM main.{{table}}"
    print(*((table, *row) for row in database.execute(rows)), sep="", end="")
"""
REWRITE = """
database.execute("UPDATE alembic_version SET version_num = '{0}'")
database.commit()
"""


class Packages(NamedTuple):
    """The two package files of a version."""

    agent: Path
    tuner: Path


class Notes(Protocol):
    """The recorded results of the steps."""

    def take(self, name: str, root: str, step: Callable[[], dict[str, Any]]) -> bool: ...

    def not_run(self, name: str, root: str, why: str) -> None: ...


STEPS = ("install .deb", "upgrade from 0.2.0's files", "tune", "upgrade", "run from .deb",
         "refuse a downgrade", "remove", "purge")  # fmt: skip


class Tried:
    """A machine, the packages of two versions, and a holding study."""

    def __init__(self, site: Site) -> None:
        self.site, self.machine = site, site.machine

    def dpkg(self, *arguments: str) -> dict[str, Any]:
        began = time.monotonic()
        self.machine.run("dpkg", *arguments)
        return {"dpkg_s": round(time.monotonic() - began, 1)}

    def python(self, code: str, database: str = DATABASE) -> str:
        """Run code on a database as the tuner's user, its owner."""
        code = f"import sqlite3; database = sqlite3.connect({database!r})\n{code}"
        command = ("runuser", "-u", "jouletune-tuner", "--", "python3", "-c", code)
        return self.machine.run(*command).strip()

    def version(self) -> str:
        return self.machine.run("dpkg-query", "-W", "-f", "${Version}", "jouletune")

    def install(self) -> dict[str, Any]:
        """Install onto a host with files of 0.2.0: nothing runs, nothing is enabled, changed files stay."""
        former.place(self.machine)
        output = self.dpkg("--force-confold", "-i", "/root/old-agent.deb", "/root/old-tuner.deb")
        for service in SERVICES:
            assert not self.site.up(service)
            assert self.machine.call("systemctl", "is-enabled", service).returncode != 0
        etc = self.machine.root / "etc/jouletune"
        assert (etc / "agent.toml").read_text() == former.CONFIG
        assert (etc / "actuator.toml").read_text() == former.GRANTED
        return output

    def from_0_2_0(self) -> dict[str, Any]:
        """Start after 0.2.0: the tuner copies and migrates, and the agent resumes its hold.

        Stop orders remain, as does every row of studies, trials and budgets.
        The agent comes last: its windows differ from the frozen ones, and the tuner watches for drift.
        """
        site, machine = self.site, self.machine
        site.systemctl("start", "jouletune-actuator")
        assert "ann" in machine.run("jouletune", "actuator", "status")
        machine.run("jouletune", "actuator", "restore", "--all", "--lift")
        before = self.python(SCHEMA)
        site.systemctl("start", "jouletune-tuner")
        after, copy = self.python(SCHEMA), f"{DATABASE}.schema-{before}"
        assert after > before
        assert not (lost := self.python(LOST.format(copy, CHANGED))), lost
        site.study = HELD
        assert site.phase() == "holding"
        machine.run("jouletune", "stop-all", "--lift", *DESK)
        site.systemctl("start", "jouletune-agent")
        site.until(lambda: site.held() and site.gpu[0] == former.HELD_MHZ, "the hold is not kept")
        log = machine.run("journalctl", "-o", "cat", "-u", "jouletune-tuner").splitlines()
        said = [json.loads(x)["message"] for x in log if "to roll back, stop the tuner" in x]
        assert len(said) == 1 and before == self.python(SCHEMA, copy)
        self.forget()
        return {"schema": [before, after], "said": "".join(said)}

    def forget(self) -> None:
        """Reset the host to the state of a first installation: only the packages' files."""
        self.site.systemctl("stop", *SERVICES)
        assert self.site.gpu == ORIGINAL
        for state in ("tuner", "agent", "actuator"):
            self.machine.run("sh", "-c", f"rm -rf /var/lib/jouletune-{state}/*")
        for name in ("agent", "actuator"):
            text = (SOURCE / f"deploy/{name}.toml").read_text()
            self.machine.write(f"/etc/jouletune/{name}.toml", text)

    def tune(self) -> dict[str, Any]:
        """Tune the fake GPU until the study holds."""
        site = self.site
        site.configure()
        site.systemctl("enable", "--now", *SERVICES)
        assert all(site.up(service) for service in SERVICES), self.machine.log()
        site.until(lambda: site.ask("device", "list"), "no device")
        device = site.ask("device", "list")[0]["device"]["id"]
        terms = ["--trials", "4", "--window", "1.5", "--max-window", "6", "--policy", "sobol"]
        limit = ["--constraint", "latency_p99_ms <= 2x baseline"]
        site.study = site.ask("study", "create", "--device", device, *limit, *terms)["id"]
        site.until(lambda: site.phase() == "holding" and site.held(), "no hold")
        return {}

    def upgrade(self) -> dict[str, Any]:
        """Upgrade: the hold is resumed, and changed files stay."""
        held, former = self.site.gpu, self.version()
        output = self.dpkg("-i", "/root/new-agent.deb", "/root/new-tuner.deb")
        assert self.version() > former
        assert all(self.site.up(service) for service in SERVICES), self.machine.log()
        self.site.until(lambda: self.site.gpu == held, "the hold is not taken up again")
        assert self.site.phase() == "holding"
        etc = self.machine.root / "etc/jouletune"
        assert (etc / "actuator.toml").read_text() == ACTUATOR
        return output

    def run_smoke(self) -> dict[str, Any]:
        """Run the smoke test with the installed commands, beside the services."""
        source = "/root/source/tests"
        current = "opt/jouletune/current"
        where = (f"/{current}/bin", "/root/work", f"{source}/frozen/0.2.0/sqlite.sql")
        (noted,) = self.machine.root.glob(f"{current}/lib/python3.*/site-packages/tuner/commit.txt")
        commit = noted.read_text().strip()
        output = self.machine.run("python3", f"{source}/release/smoke.py", *where, commit)
        return {"steps": json.loads(output.splitlines()[-1])}

    def refuse_downgrade(self) -> dict[str, Any]:
        """Try a downgrade with a newer database: it is refused with a reason, and all continues."""
        site, before = self.site, self.version()
        schema = self.python(SCHEMA)
        self.python(REWRITE.format("9999"))
        done = self.machine.call("dpkg", "-i", "/root/old-agent.deb", "/root/old-tuner.deb")
        assert done.returncode != 0
        assert "was written by a newer jouletune (schema 9999" in done.stderr, done.stderr
        assert self.version() == before
        self.python(REWRITE.format(schema))
        site.systemctl("reset-failed")
        site.systemctl("restart", "jouletune-tuner")
        site.until(lambda: all(site.up(s) for s in SERVICES) and site.held(), "nothing goes on")
        return {"said": next(x for x in done.stderr.splitlines() if "newer jouletune" in x)}

    def remove(self) -> dict[str, Any]:
        """Remove the packages: the hardware is restored, and data stay."""
        assert self.site.gpu != ORIGINAL
        output = self.dpkg("-r", "jouletune-tuner", "jouletune")
        assert self.site.gpu == ORIGINAL
        for kept in ("etc/jouletune/token", "etc/jouletune/agent.toml", DATABASE.lstrip("/")):
            assert (self.machine.root / kept).exists(), kept
        assert not (self.machine.root / "opt/jouletune").exists()
        return output

    def purge(self) -> dict[str, Any]:
        """Purge the packages: the deleted files are listed, and nothing is left, of options neither."""
        rules = "etc/udev/rules.d/90-jouletune.rules"
        self.machine.write(rules, (SOURCE / "deploy/powercap.rules").read_text())
        output = self.machine.run("dpkg", "-P", "jouletune-tuner", "jouletune")
        for path in ("/var/lib/jouletune-tuner", "/etc/jouletune/token", rules):
            assert path in output, output
        left = self.site.files() - self.site.before
        left = {path for path in left - system_files(left) if not path.startswith("/var/lib/dpkg")}
        assert left == set(), left
        for file in ("passwd", "group"):
            assert "jouletune" not in (self.machine.root / "etc" / file).read_text()
        return {}


def tried_in_a_machine(notes: Notes, root: str, base: Path, old: Packages, new: Packages) -> None:
    """Boot a Debian and run every step; after a failed step the others mean little."""
    missing = why_not()
    try:
        if missing:
            raise CannotRun(missing)
        with booted(base) as machine:
            # The administrator's folder of rules, which stays.
            (machine.root / "etc/udev/rules.d").mkdir(parents=True, exist_ok=True)
            tried = Tried(Site(machine))
            for age, pair in (("old", old), ("new", new)):
                for part, file in pair._asdict().items():
                    to = machine.root / f"root/{age}-{part}.deb"
                    to.write_bytes(file.read_bytes())
            steps = (tried.install, tried.from_0_2_0, tried.tune, tried.upgrade, tried.run_smoke,
                     tried.refuse_downgrade, tried.remove, tried.purge)  # fmt: skip
            failed = ""
            for name, step in zip(STEPS, steps, strict=True):
                if failed:
                    notes.not_run(name, root, f"{failed} failed")
                elif not notes.take(name, root, step):
                    failed = name
    except CannotRun as error:
        for name in STEPS:
            notes.not_run(name, root, str(error))
