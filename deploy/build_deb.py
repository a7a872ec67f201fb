"""Build the Debian packages: `build_deb.py FOLDER [--release RELEASE] [--version VERSION]`; as root.

In a copy of a bare Debian of that release a virtual environment is made where it will lie, from the wheel
and the locks. What an agent needs is the package `jouletune`; what the tuner needs beside it, torch above
all, is `jouletune-tuner`, in the same environment. Prints the files.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bare_debian import bare, copied
from build_wheel import SOURCE, build, git, released
from packaging.requirements import Requirement

DEPLOY = Path(__file__).parent
SCRIPTS = DEPLOY / "debian"
KEPT = SOURCE / "build" / "deb"
NUMBERS = {"bookworm": 12, "trixie": 13}
VENV = Path("opt/jouletune/current")
TUNER, AGENT = "jouletune-tuner", "jouletune"
TORCH = ("torch", "torchgen", "functorch")
PLACED = {
    AGENT: {
        "jouletune-agent.service": "usr/lib/systemd/system",
        "jouletune-actuator.service": "usr/lib/systemd/system",
        "jouletune-metrics.service": "usr/lib/systemd/system",
        "jouletune-metrics.timer": "usr/lib/systemd/system",
        "actuator.toml": "etc/jouletune",
        "agent.toml": "etc/jouletune",
        "jouletune.sysusers": "usr/lib/sysusers.d/jouletune.conf",
        "jouletune.tmpfiles": "usr/lib/tmpfiles.d/jouletune.conf",
        "nvidia.rules": "usr/lib/udev/rules.d/90-jouletune-nvidia.rules",
        "actuator-cpu.conf": "usr/share/jouletune",
        "actuator-drm.conf": "usr/share/jouletune",
        "drm-files.sh": "usr/share/jouletune",
        "actuator-jetson.conf": "usr/share/jouletune",
        "actuator-unit.conf": "usr/share/jouletune",
        "powercap.rules": "usr/share/jouletune",
        "README.md": "usr/share/doc/jouletune",
    },
    TUNER: {
        "jouletune-tuner.service": "usr/lib/systemd/system",
        "tuner.toml": "etc/jouletune",
    },
}
TOLD = {
    AGENT: ("least energy within limits: agent, actuator, command", """\
 An agent measures energy and latency of the workload on this host and tries
 settings; an actuator, the only privileged process, sets clocks and power
 limits within its grants and restores them. The command line queries
 and controls a tuner, which is in jouletune-tuner."""),
    TUNER: ("least energy within limits: the tuner", """\
 One tuner for all hosts decides what to try and remembers every trial, in
 SQLite or PostgreSQL. It adds what it needs, PyTorch above all, to the
 environment of jouletune."""),
}  # fmt: skip
OVERRIDES = {
    "dir-or-file-in-opt": "an environment of its own, apart from Debian's Python",
    "package-installs-python-pycache-dir": "compiled here: the actuator could write none",
    "embedded-library": "wheels of numpy, SciPy and others bring libraries",
    "embedded-javascript-library": "plotly brings its script, and the pages use it",
    "unstripped-binary-or-object": "wheels as their makers built them, by their digests",
    "unstripped-static-library": "PyTorch's wheel has some, by their digests",
    "binary-from-other-architecture": "wheels have launchers of other systems",
    "shared-library-is-executable": "wheels set modes",
    "shared-library-lacks-prerequisites": "extension modules find Python's symbols at run time",
    "library-not-linked-against-libc": "extension modules that call nothing of it",
    "custom-library-search-path": "wheels find the libraries that they bring",
    "statically-linked-binary": "tools in PyTorch's wheel",
    "wrong-path-for-interpreter": "scripts of packages run by the environment's Python",
    "national-encoding": "test data of packages",
}
"""What lintian is to overlook, and why."""


@dataclass(frozen=True)
class Built:
    """What a package is made from: the Debian with the environment, its release and the version."""

    root: Path
    release: str
    version: str
    quick: bool

    @property
    def debian_version(self) -> str:
        """One version for each release of Debian, in their order."""
        return f"{self.version}+deb{NUMBERS[self.release]}"

    @property
    def python(self) -> tuple[int, int]:
        """Return which Python this Debian has."""
        (folder,) = (self.root / VENV / "lib").glob("python3.*")
        return 3, int(folder.name.partition(".")[2])

    @property
    def lends_torch(self) -> bool:
        """Whether Debian's own torch is new enough, and taken; PyTorch's CPU build is locked for 3.11."""
        return self.python > (3, 11)


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--release", choices=sorted(NUMBERS), default="bookworm")
    parser.add_argument("--version", default="")
    parser.add_argument("--quick", action="store_true", help="larger files in less time, for tests")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    # One at a time: they share what is kept.
    with tempfile.TemporaryDirectory() as temporary, (KEPT / "lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        wheel = next(f for f in build(Path(temporary), given.version) if f.suffix == ".whl")
        before, files = filled(given.release)
        root = KEPT / "root"
        clear(KEPT)
        try:
            # Links: nothing below changes a file where it is.
            subprocess.run(["cp", "-al", before, root], check=True)
            made = Built(root, given.release, given.version or released(), given.quick)
            for package, names in with_program(root, wheel, files).items():
                sys.stdout.write(f"{packed(made, package, names, given.folder)}\n")
        finally:
            clear(KEPT)


def clear(kept: Path) -> None:
    """Remove what a build makes and does not keep; a killed one has left it."""
    left = [*kept.glob("root*"), *kept.glob("tmp*")]
    subprocess.run(["rm", "-rf", "--one-file-system", "--", *left], check=False)


def environment(root: Path) -> dict[str, list[str]]:
    """Install what the locks have into a root's environment, and return each package's files in it."""
    run("chroot", root, "python3", "-m", "venv", f"/{VENV}")
    # Debian 12's; the tuner's lock has another, and no file may change once a package has it.
    pip(root, "uninstall", "--yes", "setuptools")
    python = python_of(root)
    files: dict[str, list[str]] = {}
    for package, lock in ((AGENT, "agent"), (TUNER, "tuner")):
        asked = locked(lock, python)
        install(root, asked, download(asked, python))
        files[package] = compiled(root, *files.values())
    return files


def python_of(root: Path) -> str:
    """Return which Python a root has: 3.11."""
    told = "import sys; print('%d.%d' % sys.version_info[:2])"
    return run("chroot", root, "python3", "-c", told).strip()


def filled(release: str) -> tuple[Path, dict[str, list[str]]]:
    """Return a Debian with what the locks have, kept for the next time, and each package's files."""
    digest = hashlib.sha256(b"".join(f.read_bytes() for f in sorted((DEPLOY / "locks").iterdir())))
    kept = KEPT / f"filled-{release}-{digest.hexdigest()[:12]}"
    listed = kept.with_suffix(".json")
    if not listed.exists():
        made = environment(copied(bare(release, KEPT), kept))
        listed.write_text(json.dumps(made), encoding="utf-8")
    found: dict[str, list[str]] = json.loads(listed.read_text(encoding="utf-8"))
    return kept, found


def with_program(root: Path, wheel: Path, files: dict[str, list[str]]) -> dict[str, list[str]]:
    """Install the wheel into a root's environment: it is the agent's package's."""
    shutil.copy2(wheel, root / "tmp")
    pip(root, "install", "--no-deps", "--no-index", f"/tmp/{wheel.name}")
    return {**files, AGENT: files[AGENT] + compiled(root, *files.values())}


def compiled(root: Path, *known: list[str]) -> list[str]:
    """Return the environment's files that are not known yet, compiled.

    By content, not by time: packages set other times, and the actuator could write none. What torch tests
    newer Pythons with does not compile.
    """
    taken = {file for files in known for file in files}
    found = [file for file in every_file(root / VENV) if file not in taken]
    texts = "".join(
        f"/{VENV}/{f}\n" for f in found if f.endswith(".py") and "/torch/testing/" not in f
    )
    (root / "tmp/compiled").write_text(texts, encoding="utf-8")
    run("chroot", root, f"/{VENV}/bin/python", "-m", "compileall", "-q", "-j", "2",
        "--invalidation-mode", "unchecked-hash", "-i", "/tmp/compiled")  # fmt: skip
    return [file for file in every_file(root / VENV) if file not in taken]


def locked(name: str, python: str) -> str:
    """Return what a lock has for a Python, with digests and without conditions."""
    place = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
    }
    entries = re.split(r"\n(?=\S)", (DEPLOY / "locks" / f"{name}.txt").read_text(encoding="utf-8"))
    kept = []
    for entry in (e for e in entries if not e.startswith("#")):
        head, _, digests = entry.partition(" \\\n")
        requirement = Requirement(head)
        if requirement.marker is None or requirement.marker.evaluate(place):
            kept.append(f"{requirement.name}{requirement.specifier} \\\n{digests.strip()}")
    return "\n".join(kept) + "\n"


def download(asked: str, python: str) -> Path:
    """Return a folder with the wheels of a lock, checked against their digests."""
    wheels = KEPT / f"wheels-{python}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
    part = wheels.with_name(f"{wheels.name}.part")
    if not wheels.exists():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        (part / "lock.txt").write_text(asked, encoding="utf-8")
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
            "--python-version", python, "--require-hashes", "-r", part / "lock.txt",
            "-d", part)  # fmt: skip
        part.rename(wheels)
    return wheels


def install(root: Path, asked: str, wheels: Path) -> None:
    """Install what a lock has into the environment, offline."""
    inside = root / "tmp" / "wheels"
    shutil.rmtree(inside, ignore_errors=True)
    shutil.copytree(wheels, inside)
    pip(root, "install", "--no-deps", "--no-index", "--find-links", "/tmp/wheels",
        "--require-hashes", "-r", "/tmp/wheels/lock.txt")  # fmt: skip
    shutil.rmtree(inside)


def pip(root: Path, *arguments: str) -> None:
    """Run the environment's pip."""
    quiet = ("--quiet", "--disable-pip-version-check", "--root-user-action=ignore")
    command = ("chroot", root, f"/{VENV}/bin/python", "-m", "pip", arguments[0], *quiet)
    run(*command, *(["--no-compile"] if arguments[0] == "install" else []), *arguments[1:])


def every_file(top: Path) -> list[str]:
    """Return every file and link below a folder, by its path in it."""
    found = (Path(folder, name) for folder, down, names in os.walk(top) for name in (*down, *names))
    kept = (f for f in found if f.suffix != ".exe" and f.name != ".gitignore")
    return sorted(str(f.relative_to(top)) for f in kept if f.is_symlink() or f.is_file())


def packed(built: Built, package: str, files: list[str], folder: Path) -> Path:
    """Make one package from its files of the environment and what lies beside."""
    with tempfile.TemporaryDirectory(dir=KEPT) as temporary:
        stage = Path(temporary)
        stage.chmod(0o755)
        for file in files:
            (stage / VENV / file).parent.mkdir(parents=True, exist_ok=True)
            (built.root / VENV / file).rename(stage / VENV / file)
        for name, place in PLACED[package].items():
            put(stage, DEPLOY / name, place)
        if package == AGENT:
            (stage / "usr/bin").mkdir()
            (stage / "usr/bin/jouletune").symlink_to(f"/{VENV}/bin/jouletune")
        elif built.lends_torch:
            link_torch(built, stage)
        describe(built, package, stage)
        (stage / "DEBIAN").mkdir()
        control(built, package, stage)
        for path in (stage, *stage.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        deb = folder / f"{package}_{built.debian_version}_{architecture()}.deb"
        environ = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
        squeezed = ("-Zgzip", "-z1") if built.quick else ("-Zxz", "-z0")
        command = ("dpkg-deb", "--root-owner-group", *squeezed, "--build", stage, deb)
        run(*command, environ=environ)
    return deb


def put(stage: Path, file: Path, place: str) -> None:
    """Place a file of this folder, under its name where the place is a folder."""
    to = stage / place if Path(place).suffix in {".conf", ".rules"} else stage / place / file.name
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)
    to.chmod(0o644)


def link_torch(built: Built, stage: Path) -> None:
    """Have the environment see Debian's torch, and nothing else of Debian's."""
    site = stage / VENV / "lib" / "python{}.{}".format(*built.python) / "site-packages"
    for name in TORCH:
        (site / name).symlink_to(f"/usr/lib/python3/dist-packages/{name}")


def describe(built: Built, package: str, stage: Path) -> None:
    """Write changelog, copyright and what lintian is to overlook: an environment of its own in /opt."""
    docs = stage / "usr/share/doc" / package
    docs.mkdir(parents=True, exist_ok=True)
    date = git("log", "-1", "--format=%cD").strip()
    entry = f"""jouletune ({built.debian_version}) {built.release}; urgency=medium

  * Built from {git("describe", "--always", "--dirty", "--exclude=*").strip()}; see CHANGELOG.md.

 -- {MAINTAINER}  {date}
"""
    (docs / "changelog.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    (docs / "copyright").write_text(COPYRIGHT, encoding="utf-8")
    if package == AGENT:
        changes = (SOURCE / "CHANGELOG.md").read_bytes()
        (docs / "NEWS.gz").write_bytes(gzip.compress(changes, mtime=0))
    overlooked = stage / "usr/share/lintian/overrides" / package
    overlooked.parent.mkdir(parents=True)
    overlooked.write_text("".join(f"# {why}\n{package}: {tag}\n" for tag, why in OVERRIDES.items()))


def control(built: Built, package: str, stage: Path) -> None:
    """Write what dpkg reads: control, conffiles, digests and maintainer scripts."""
    files = sorted(f for f in stage.rglob("*") if f.is_file() and "DEBIAN" not in f.parts)
    short, long = TOLD[package]
    major, minor = built.python
    depends = (
        f"libc6, python3 (>= {major}.{minor}~), python3 (<< {major}.{minor + 1}), systemd (>= 249)"
    )
    if package == TUNER:
        depends += f", jouletune (= {built.debian_version})"
        depends += ", python3-torch (>= 2.6)" if built.lends_torch else ""
    size = sum(f.lstat().st_size for f in files) // 1024
    text = f"""Package: {package}
Version: {built.debian_version}
Architecture: {architecture()}
Maintainer: {MAINTAINER}
Installed-Size: {size}
Depends: {depends}
Section: utils
Priority: optional
Description: {short}
{long}
"""
    here = stage / "DEBIAN"
    (here / "control").write_text(text, encoding="utf-8")
    conf = [f"/{f.relative_to(stage)}\n" for f in files if f.is_relative_to(stage / "etc")]
    (here / "conffiles").write_text("".join(conf), encoding="utf-8")
    sums = "".join(
        f"{hashlib.md5(f.read_bytes(), usedforsecurity=False).hexdigest()}  {f.relative_to(stage)}\n"
        for f in files
        if not f.is_relative_to(stage / "etc") and not f.is_symlink()
    )
    (here / "md5sums").write_text(sums, encoding="utf-8")
    for script in ("preinst", "postinst", "prerm", "postrm"):
        (here / script).write_text(script_text(package, script, built.version), encoding="utf-8")
        (here / script).chmod(0o755)


def script_text(package: str, script: str, version: str) -> str:
    """Return a maintainer script, with what all share in front of it."""
    schema = re.search(r'^SCHEMA = "(\d+)"$', (SOURCE / "db/__init__.py").read_text(), re.MULTILINE)
    assert schema
    parts = [SCRIPTS / "common.sh", SCRIPTS / f"{package}.{script}"]
    text = "#!/bin/sh\n" + "\n".join(part.read_text(encoding="utf-8") for part in parts)
    return text.replace("@SCHEMA@", schema[1]).replace("@VERSION@", version)


MAINTAINER = "jouletune <jouletune@jouletune.invalid>"
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: jouletune

Files: *
Copyright: 2026 the authors of jouletune
License: Apache-2.0
Comment: Each package in /opt/jouletune/current has its own licence in its folder of metadata there.

License: Apache-2.0
 On Debian systems, the whole text is in /usr/share/common-licenses/Apache-2.0.
"""


def architecture() -> str:
    """Return what Debian calls this processor."""
    return run("dpkg", "--print-architecture").strip()


def run(*command: str | Path, environ: dict[str, str] | None = None) -> str:
    """Return what a command says. Exits where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        said = f"{done.stdout[-2000:]}{done.stderr[-3000:]}"
        sys.exit(f"build_deb.py: {' '.join(map(str, command))}: {said}")
    return done.stdout


if __name__ == "__main__":
    main()
