"""A bare Debian in a folder, made once: packages are built in it, installed in it, booted from it."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

PACKAGES = "systemd,systemd-sysv,dbus,polkitd,python3,python3-venv,procps,iproute2"


def bare(release: str, kept: Path, *tied: str, limit_s: float = 900.0) -> Path:
    """Return a bare Debian in a folder of `kept`, of which copies are made; made now if it is not there.

    `tied` stands before the command that makes it.

    Raises:
        CalledProcessError: it cannot be made: no network, or no rights.
        TimeoutExpired: it takes too long.
    """
    base = kept / f"base-{hashlib.sha256(f'{release} {PACKAGES}'.encode()).hexdigest()[:12]}"
    part = kept / f"base-{release}.part"
    if not base.exists():
        kept.mkdir(parents=True, exist_ok=True)
        subprocess.run(["rm", "-rf", "--one-file-system", part], check=True)
        # What it mounts is invisible to others, and removed with it, also when it is killed.
        alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        made = ("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", release, str(part))
        subprocess.run(
            [*tied, *alone, *made], capture_output=True, text=True, check=True, timeout=limit_s
        )
        part.rename(base)
    return base


def copied(base: Path, to: Path) -> Path:
    """Copy a bare Debian, to be changed."""
    subprocess.run(["rm", "-rf", "--one-file-system", to], check=True)
    subprocess.run(["cp", "-a", "--reflink=auto", base, to], check=True)
    return to
