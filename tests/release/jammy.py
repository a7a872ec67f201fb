"""Agent and actuator on Ubuntu 22.04, as in JetPack 6, installed by install.sh; the tuner is elsewhere.

The root is the caller's, named by `JOULETUNE_JAMMY`: a folder made by `mmdebstrap jammy` with `PACKAGES`.
Nothing is fetched from Ubuntu's archive here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bare_debian import copied
from build_deb import download, locked

from tests.processes import children, run_to_end
from tests.systemd.machine import SOURCE, CannotRun, Machine, booted, why_not
from tests.systemd.test_services import DESK, INSTALL, ORIGINAL, Site

PACKAGES = "systemd,systemd-sysv,dbus,policykit-1,python3,python3-venv,procps,iproute2"
MAKE_S = 1800.0
SERVICES = ("jouletune-actuator", "jouletune-agent")
BINARIES = Path(sys.executable).parent


class Away(Site):
    """A machine without a tuner; the tuner runs on this host, in the machine's network."""

    def ask(self, *command: str) -> Any:  # noqa: ANN401 - JSON
        done = run_to_end(
            [*in_network(self.machine), str(BINARIES / "jouletune"), *command, *self.desk],
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def desk(self) -> tuple[str, ...]:
        token = str(self.machine.root / "etc/jouletune/token")
        return tuple(token if word == "/etc/jouletune/token" else word for word in DESK)


def tried(kept: Path) -> dict[str, Any]:
    """Install, tune to a hold, stop, and remove. Raises CannotRun: there is no such machine."""
    if missing := why_not():
        raise CannotRun(missing)
    with booted(prepared(kept)) as machine:
        site = Away(machine)
        versions = {
            "python": machine.run("python3", "--version").split()[1],
            "systemd": machine.run("systemctl", "--version").split()[1],
        }
        machine.run(*INSTALL, "--agent-only")
        site.configure()
        with tuner(site):
            site.systemctl("enable", "--now", *SERVICES)
            assert all(site.up(service) for service in SERVICES), machine.log()
            site.until(lambda: site.ask("device", "list"), "no device")
            device = site.ask("device", "list")[0]["device"]["id"]
            terms = ["--trials", "4", "--window", "1.5", "--max-window", "6", "--policy", "sobol"]
            limit = ["--constraint", "latency_p99_ms <= 2x baseline"]
            site.study = site.ask("study", "create", "--device", device, *limit, *terms)["id"]
            site.until(lambda: site.phase() == "holding" and site.held(), "no hold")
        machine.run(*INSTALL, "--uninstall")
        assert site.gpu == ORIGINAL
        machine.run(*INSTALL, "--purge", "--yes")
        left = {path for path in site.files() - site.before if "jouletune" in path}
        assert left == set(), left
        return versions


def in_network(machine: Machine) -> tuple[str, ...]:
    first = str(children(machine.nspawn)[0])
    return ("nsenter", "-t", first, "-n")


@contextmanager
def tuner(site: Site) -> Iterator[None]:
    """Run this checkout's tuner in the machine's network, with the machine's token."""
    folder = site.machine.root / "root/tuner"
    folder.mkdir()
    token = site.machine.root / "etc/jouletune/token"
    token.write_text("a-token-that-only-this-machine-has\n")
    token.chmod(0o600)
    command = (
        *in_network(site.machine), str(BINARIES / "jouletune"), "tuner", "serve",
        "--db", f"sqlite:///{folder}/tuner.sqlite", "--token-file", str(token), "--port", "8790",
    )  # fmt: skip
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with (folder / "log").open("wb") as log:
        served = subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        served.terminate()
        served.wait(60)


def prepared(kept: Path) -> Path:
    """Return a copy of the caller's Ubuntu 22.04, with the wheels that install.sh needs."""
    named, whole = os.environ.get("JOULETUNE_JAMMY", ""), kept / "jammy"
    base = Path(named)
    if not named or not (base / "etc/os-release").is_file():
        raise CannotRun(f"JOULETUNE_JAMMY names no Ubuntu 22.04 with {PACKAGES}")
    copied(base, whole)
    try:
        shutil.copytree(download(locked("agent", "3.10"), "3.10"), whole / "wheels")
    except SystemExit as error:
        raise CannotRun(str(error)) from None
    needs = tomllib.loads((SOURCE / "pyproject.toml").read_text())["build-system"]["requires"]
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d")
    must(*pip, str(whole / "wheels"), *needs)
    return whole


def must(*command: str) -> None:
    """Run a command that prepares the machine. Raises CannotRun: it failed."""
    done = run_to_end(command, timeout=MAKE_S)
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise CannotRun(f"{command[0]} does not make an Ubuntu 22.04 here: {last}")
