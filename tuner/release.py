"""The running release: its version, its commit, and whether another distribution has its packages."""

import json
import subprocess
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from tuner.errors import ConfigError

DISTRIBUTION = "jouletune"
PACKAGES = ("agents", "db", "policies", "tuner")
COMMIT = Path(__file__).with_name("commit.txt")
"""A file that `make wheel` and install.sh write; a checkout does not have it."""


def check_names() -> None:
    """Raise ConfigError if another installed distribution has a package with one of our names.

    Both install into one folder, file over file, so an import would load a mixture of the two.
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
    """Return the commit from which this release was built; empty if it is unknown."""
    if COMMIT.is_file():
        return COMMIT.read_text(encoding="utf-8").strip()
    return _of_checkout(Path(__file__).parents[1]) or _of_install()


def _of_checkout(top: Path) -> str:
    """Return the commit of a checkout, with `-dirty` if files differ from it; empty if git fails."""
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
    """Return the commit that pip records when it installs from a repository (PEP 610); empty if none."""
    try:
        noted = distribution(DISTRIBUTION).read_text("direct_url.json") or "{}"
    except PackageNotFoundError:
        return ""
    commit_id = json.loads(noted).get("vcs_info", {}).get("commit_id", "")
    return str(commit_id)[:12]
