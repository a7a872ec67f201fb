"""Build the images: `build_image.py FOLDER [--target TARGET ...]`; as root, with mmdebstrap and buildah.

Nothing comes from a registry: the base is a Debian that mmdebstrap makes from Debian's archive, once a day,
the rest are the wheels of the locks, checked against their digests. Each image is in the local store as
`localhost/jouletune-TARGET:VERSION`; FOLDER gets its list of parts (CycloneDX) and `sizes.json`. An image
that is larger than `MOST_MB` is an error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from build_deb import download, locked
from build_wheel import SOURCE, build, git, released

DEPLOY = Path(__file__).parent
KEPT = SOURCE / "build" / "image"
TOOLS = ("mmdebstrap", "buildah", "unshare")
DEBIAN, PYTHON = "bookworm", "3.11"
MOST_MB = {"agent": 150, "actuator": 150, "tuner": 1500}
"""How large an image may be, unpacked; our choice."""
LOCKS = {"agent": "agent", "actuator": "agent", "tuner": "tuner"}
PACKAGES = "python3,ca-certificates,libstdc++6,python3-pip-whl"
"""libstdc++6: numpy and PyTorch bring their own libraries but this one."""
UNUSED = ("libperl5.36", "perl", "perl-base", "perl-modules-5.36", "python3-pip-whl")
"""What nothing in the images runs: perl is for Debian's own scripts, and pip is the builder's."""
USERS = {"jouletune-agent": (10790, "jouletune"), "jouletune-tuner": (10791, "jouletune-tuner")}
"""Names, numbers and groups of users and groups, whose numbers are their users'."""
WITHOUT = ("man", "locale", "doc", "doc-base", "info", "lintian")


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", action="append", choices=sorted(MOST_MB))
    given = parser.parse_args()
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        sys.exit(
            f"build_image.py: not installed: {', '.join(missing)} (apt install buildah mmdebstrap)"
        )
    given.folder.mkdir(parents=True, exist_ok=True)
    sizes, wrong = {}, []
    with tempfile.TemporaryDirectory(dir=SOURCE / "build") as temporary:
        context = prepared(Path(temporary))
        for target in given.target or sorted(MOST_MB):
            sizes[target] = built(context, target)
            parts = given.folder / f"{target}.cdx.json"
            parts.write_text(json.dumps(bill_of_materials(context, target), indent=1) + "\n")
            if sizes[target] > MOST_MB[target]:
                wrong.append(f"{target} has {sizes[target]:.0f} MB, above {MOST_MB[target]}")
            sys.stdout.write(f"{name_of(target)}: {sizes[target]:.0f} MB; {parts}\n")
    (given.folder / "sizes.json").write_text(json.dumps(sizes) + "\n")
    if wrong:
        sys.exit("\n".join(wrong))


def name_of(target: str) -> str:
    """Return what an image is called."""
    return f"localhost/jouletune-{target}:{released()}"


def prepared(context: Path) -> Path:
    """Fill a folder with all that the Containerfile asks for."""
    for file in (DEPLOY / "container").iterdir():
        shutil.copy2(file, context)
    base = debian()
    (context / "root.tar").hardlink_to(base / "root.tar")
    shutil.copy2(next(base.glob("python-wheels/pip-*.whl")), context / "pip.whl")
    for lock in {*LOCKS.values()}:
        shutil.copytree(download(locked(lock, PYTHON), PYTHON), context / lock)
    build(context / "project")
    return context


def debian() -> Path:
    """Return a folder with today's Debian as `root.tar`, and Debian's pip."""
    recipe = hashlib.sha256(repr((PACKAGES, UNUSED, USERS, WITHOUT)).encode()).hexdigest()[:12]
    kept = KEPT / f"{DEBIAN}-{datetime.now(UTC):%Y-%m-%d}-{recipe}"
    if (kept / "root.tar").exists():
        return kept
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    purge = "dpkg --purge --force-depends --force-remove-essential --force-remove-protected"
    hooks = [
        f"copy-out /usr/share/python-wheels {kept}",
        f'chroot "$1" {purge} {" ".join(UNUSED)}',
        *(
            f"echo '{group}:x:{number}:' >>\"$1/etc/group\"; "
            f"echo '{user}:x:{number}:{number}::/tmp:/usr/sbin/nologin' >>\"$1/etc/passwd\""
            for user, (number, group) in USERS.items()
        ),
        # Nothing may become another user, and nothing is logged here.
        'find "$1" -xdev -perm /6000 -type f -exec chmod a-s {} +; rm -rf "$1"/var/log/*',
    ]
    command = ["mmdebstrap", "--variant=essential", f"--include={PACKAGES}"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in WITHOUT]
    command += ["--dpkgopt=path-include=/usr/share/doc/*/copyright"]
    command += [f"--customize-hook={hook}" for hook in hooks]
    # What it mounts is invisible to others, and removed with it, also when it is killed.
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    run(*alone, *command, DEBIAN, str(kept / "root.part.tar"))
    (kept / "root.part.tar").rename(kept / "root.tar")
    return kept


def built(context: Path, target: str) -> float:
    """Build an image; return its megabytes, unpacked."""
    # In a chroot, which needs no cgroups, and without a network.
    run("unshare", "--net", "buildah", "bud", "--format", "docker", "--layers",
        "--isolation", "chroot", "--target", target, "--tag", name_of(target),
        "--timestamp", git("log", "-1", "--format=%ct").strip(), str(context))  # fmt: skip
    with tempfile.TemporaryDirectory(dir=KEPT) as temporary:
        archive = Path(temporary, "image.tar")
        run("buildah", "push", "--quiet", name_of(target), f"docker-archive:{archive}")
        return archive.stat().st_size / 1e6


def bill_of_materials(context: Path, target: str) -> dict[str, Any]:
    """Return what an image consists of: Python's packages by the lock, Debian's by dpkg."""
    lock = context / LOCKS[target] / "lock.txt"
    tool = Path(sys.executable).with_name("cyclonedx-py")
    text = run(str(tool), "requirements", "--pyproject", str(SOURCE / "pyproject.toml"),
               "--output-reproducible", "--of", "JSON", str(lock))  # fmt: skip
    bill: dict[str, Any] = json.loads(text)
    bill["components"] += [*debian_parts(context / "root.tar")]
    return bill


def debian_parts(root: Path) -> Iterator[dict[str, str]]:
    """Yield a component for each package that dpkg lists in a root."""
    status = run("tar", "-xOf", str(root), "./var/lib/dpkg/status")
    for entry in filter(None, status.split("\n\n")):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", entry, re.MULTILINE))
        if fields.get("Status") != "install ok installed":
            continue
        name, version = fields["Package"], fields["Version"]
        purl = f"pkg:deb/debian/{name}@{version}?arch={fields['Architecture']}&distro={DEBIAN}"
        yield {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def run(*command: str) -> str:
    """Run a command that must not fail, and return what it says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"build_image.py: {' '.join(command[:2])}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
