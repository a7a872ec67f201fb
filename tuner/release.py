"""The release that runs: its version, its commit, and whether its packages are its own."""

import json
import subprocess
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from tuner.errors import ConfigError

DISTRIBUTION = "jouletune"
PACKAGES = ("agents", "db", "policies", "tuner")
COMMIT = Path(__file__).with_name("commit.txt")
"""Written by `make wheel` and by install.sh; a checkout has none."""


def check_names() -> None:
    """Raise ConfigError where another installed distribution brings a package of one of our names.

    Both install into one folder, file over file: what is imported would be a mixture of the two.
    """
    owners = packages_distributions()
    for package in PACKAGES:
        for other in sorted({*owners.get(package, ())} - {DISTRIBUTION}):
            raise ConfigError(
                f"the Python package `{package}` also belongs to the distribution {other}",
                hint=f"install {DISTRIBUTION} into a separate environment, without {other}",
            )


def version() -> str:
    """Return the installed version."""
    return distribution(DISTRIBUTION).version


def commit() -> str:
    """Return the commit that this is built from, empty where nothing says so."""
    if COMMIT.is_file():
        return COMMIT.read_text(encoding="utf-8").strip()
    return _of_checkout(Path(__file__).parents[1]) or _of_install()


def _of_checkout(top: Path) -> str:
    """Return the commit of a checkout, with `-dirty` where files differ from it."""
    if not (top / ".git").exists():
        return ""
    command = [
        "git",
        "-C",
        str(top),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10.0)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _of_install() -> str:
    """Return the commit that pip notes where it installs from a repository (PEP 610)."""
    try:
        noted = distribution(DISTRIBUTION).read_text("direct_url.json") or "{}"
    except PackageNotFoundError:
        return ""
    commit_id = json.loads(noted).get("vcs_info", {}).get("commit_id", "")
    return str(commit_id)[:12]
