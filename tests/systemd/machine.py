"""A separate Debian, booted in systemd-nspawn, in which the real services run."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bare_debian import bare

from tests import processes
from tests.processes import children, gone, run_to_end

SOURCE = Path(__file__).parents[2]
KEPT = SOURCE / "build" / "systemd"
"""The cache folder of the bare Debian and the wheels."""
TOOLS = ("mmdebstrap", "systemd-nspawn", "nsenter", "setpriv", "unshare", "gcc", "git")
CGROUPS = Path("/sys/fs/cgroup")
WHEELS = "/wheels"
MAKE_S = 900.0
"""The deadline in s of making the Debian, and of downloading the wheels; usually 40 s and 30 s. This
deadline and those below only end hangs: each is twenty times the time on an idle machine.
"""
BOOT_S = 300.0
COMMAND_S = 900.0
"""The deadline in s of a command inside; installing takes longest, usually half a minute."""
AWAIT_S = 900.0
"""The longest wait in s for a condition inside."""
until = partial(processes.until, within_s=AWAIT_S)
STEPS_S = 2 * MAKE_S + BOOT_S + 3 * COMMAND_S
"""The deadline in s of a test: more than all deadlines of the first, which makes and installs."""
STOP_S = 60.0
JOIN = 'while [ "$1" != -- ]; do mkdir -p "$1"; echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'
"""Machines in one control group would share their units' groups: the stop of one ends the start of
another."""
TIED = ("setpriv", "--pdeathsig", "TERM")
"""Ends the machine when the tests end, however that happens; a machine takes at most 90 s."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CannotRun(Exception):
    """No such machine can be made here; the message has the reason.

    It is raised only before anything of ours is in the machine: a bare Debian that cannot be made, or
    does not boot, is no evidence about the product. Every later error is a failure.
    """


def why_not() -> str:
    """Return the missing requirements to boot a machine here; empty if none is known."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (apt install mmdebstrap systemd-container gcc)"
    return "" if os.geteuid() == 0 else "only root can boot a container"


@dataclass
class Machine:
    """A machine: its files seen from outside, and commands that run inside while it is booted."""

    root: Path
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def nspawn(self) -> int:
        """The process of systemd-nspawn, 0 while it is not booted."""
        return self.process.pid if self.process else 0

    def boot(self) -> None:
        """Boot it. Raises CannotRun."""
        log = self.root.with_suffix(".log")
        command = ["sh", "-ec", JOIN, "sh", *map(str, _cgroups(self.root)), "--", *TIED]
        command += ["systemd-nspawn", "-D", str(self.root), "-b"]
        command += ["--register=no", "--keep-unit", "--private-network", "-M", self.root.name]
        with log.open("wb") as written:
            self.process = subprocess.Popen(
                [*command, *self.options], stdin=subprocess.DEVNULL, stdout=written, stderr=written
            )
        _await_boot(self, self.process, log)

    def stop(self) -> None:
        """Shut it down, like an administrator."""
        process, self.process = self.process, None
        if process is not None:
            _stop(process)

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, without a network; pip finds its wheels in a folder."""
        first = str(children(self.nspawn)[0])
        inside = ["nsenter", "-t", first, "-m", "-u", "-i", "-n", "-p", "-C", "-r"]
        environ = [f"PATH={PATH}", "HOME=/root", "PIP_NO_INDEX=1", f"PIP_FIND_LINKS={WHEELS}"]
        return run_to_end([*inside, "env", "-i", *environ, *command], timeout=COMMAND_S)

    def run(self, *command: str) -> str:
        """Run a command inside that must not fail, and return its output."""
        done = self.call(*command)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def log(self) -> str:
        return self.call("journalctl", "--no-pager", "-n", "60", "-u", "jouletune-*").stdout


@contextmanager
def booted(base: Path | None = None) -> Iterator[Machine]:
    """Boot a copy of a Debian, with this checkout in /root/source; by default a bare one, with wheels.

    Raises CannotRun.
    """
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:  # one process makes the Debian, the others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        _drop_leftovers()
        try:
            bind = [] if base else [f"--bind-ro={_wheels()}:{WHEELS}"]
            base = base or _base()
        except BaseException:
            _drop_leftovers()
            raise
    root = KEPT / f"root-{threading.get_native_id()}-{os.getpid()}"
    try:
        subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
        _copy_source(root / "root" / "source")
        machine = Machine(root, bind)
        try:
            machine.boot()
            yield machine
        finally:
            machine.stop()
    finally:
        _drop(root)


def _await_boot(machine: Machine, nspawn: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until every unit of the bare Debian is up. Raises CannotRun."""
    end = time.monotonic() + BOOT_S
    state = "nothing runs in it"
    while time.monotonic() < end and nspawn.poll() is None:
        time.sleep(0.5)
        try:
            state = machine.call("systemctl", "is-system-running").stdout.strip() or state
        except (OSError, IndexError, subprocess.TimeoutExpired):
            continue
        if state == "running":
            return
        if state == "degraded":
            units = machine.call("systemctl", "--failed", "--plain", "--no-legend").stdout.split(
                "\n"
            )
            state = f"these do not start: {', '.join(u.split()[0] for u in units if u.strip())}"
            break
    if nspawn.poll() is not None:
        state = f"it ended with {nspawn.returncode}"
    last = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
    raise CannotRun(
        f"systemd-nspawn does not boot a bare Debian here: {state}; its log ends: {last}"
    )


def _cgroups(root: Path) -> list[Path]:
    """Return a machine's control groups: one in each hierarchy in which its systemd has units."""
    trees = [CGROUPS / name for name in ("systemd", "unified", ".")]
    return [tree / root.name for tree in trees if (tree / "cgroup.procs").exists()]


def _stop(nspawn: subprocess.Popen[bytes]) -> None:
    """Shut the machine down; at the second signal nspawn kills the remaining processes.

    A killed nspawn would leave the machine running.
    """
    for _ in range(2):
        nspawn.terminate()
        try:
            nspawn.wait(STOP_S)
            return
        except subprocess.TimeoutExpired:
            continue
    nspawn.kill()
    nspawn.wait()


def _drop(root: Path) -> None:
    """Remove a machine: its tree, its log, the lock that nspawn puts beside it, its control groups."""
    _remove(root)
    for top in _cgroups(root):
        with suppress(OSError):  # a machine whose tests were killed may still be shutting down
            for folder, _, _ in os.walk(top, topdown=False):
                Path(folder).rmdir()
    root.with_suffix(".log").unlink(missing_ok=True)
    root.with_name(f".#{root.name}.lck").unlink(missing_ok=True)


def _remove(tree: Path) -> None:
    """Remove some ten thousand files, but nothing mounted there."""
    subprocess.run(["rm", "-rf", "--one-file-system", tree], check=False)


def _drop_leftovers() -> None:
    """Remove the files of killed tests, and incomplete ones."""
    for part in KEPT.glob("*.part"):
        _remove(part)
    for root in KEPT.glob("root-*[0-9]"):
        if gone(int(root.name.rpartition("-")[2])):
            _drop(root)


def _base() -> Path:
    try:
        return bare("bookworm", KEPT, *TIED, limit_s=MAKE_S)
    except subprocess.SubprocessError as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        last = " | ".join(said.strip().splitlines()[-3:])
        raise CannotRun(f"mmdebstrap fails here (no network, or no rights): {last}") from None


def _wheels() -> Path:
    """Download the installer's packages, because the machine has no network."""
    texts = [SOURCE / "pyproject.toml", SOURCE / "constraints.txt"]
    key = hashlib.sha256(b"".join(text.read_bytes() for text in texts)).hexdigest()[:12]
    wheels, part = KEPT / f"wheels-{key}", KEPT / "wheels.part"
    if not wheels.exists():
        table = tomllib.loads(texts[0].read_text())
        extras = table["project"]["optional-dependencies"]
        wanted = [*table["build-system"]["requires"], *table["project"]["dependencies"]]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:"]
        pip += ["--python-version", "3.11", "-c", str(texts[1]), "-d", str(part)]
        _must("pip download", *pip, *wanted, *extras["tuner"], *extras["postgres"])
        part.rename(wheels)
    return wheels


def _must(what: str, *command: str) -> None:
    """Run a command that prepares the machine. Raises CannotRun: it failed."""
    try:
        done = run_to_end([*TIED, *command], timeout=MAKE_S)
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{what} takes longer than {MAKE_S:g} s here") from None
    if done.returncode:
        # Versions that exclude each other are our mistake, not a lack of this host.
        assert "ResolutionImpossible" not in done.stderr, done.stderr
        last = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise CannotRun(f"{what} fails here (no network, or no rights): {last}")


def _copy_source(to: Path) -> None:
    """Copy the tracked files of this checkout, in their present state."""
    listed = run_to_end(
        ["git", "-c", f"safe.directory={SOURCE}", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=SOURCE,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (SOURCE / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, to / name)
