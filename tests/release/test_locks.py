"""The locks have exactly the dependencies in pyproject.toml, pinned and with digests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SOURCE = Path(__file__).parents[2]
PROJECT = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ASKED = {
    "agent": PROJECT["dependencies"],
    "tuner": [*PROJECT["dependencies"], *EXTRAS["tuner"], *EXTRAS["postgres"]],
}
PLACES = [
    ("agent", "3.10", "x86_64"),
    ("agent", "3.10", "aarch64"),
    ("agent", "3.11", "x86_64"),
    ("agent", "3.13", "x86_64"),
    ("tuner", "3.11", "x86_64"),
    ("tuner", "3.13", "x86_64"),
]
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}$")


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Return each requirement of a lock, and its digests."""
    text = (SOURCE / "deploy/locks" / f"{name}.txt").read_text().replace("\\\n", "")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return [
        (
            Requirement(" ".join(word for word in line if not word.startswith("--hash"))),
            [word for word in line if word.startswith("--hash")],
        )
        for line in lines
    ]


def pinned(name: str, python: str, machine: str) -> dict[str, str]:
    """Return the releases that a lock has for a Python on a processor."""
    place = {
        "python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine,
        "sys_platform": "linux", "platform_system": "Linux", "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }  # fmt: skip
    found: dict[str, str] = {}
    for requirement, _ in entries(name):
        if requirement.marker is None or requirement.marker.evaluate(place):
            (one,) = requirement.specifier
            assert one.operator == "=="
            assert requirement.name not in found, f"{requirement.name} twice for {python}"
            found[canonicalize_name(requirement.name)] = one.version
    return found


@pytest.mark.parametrize(("name", "python", "machine"), PLACES)
def test_a_lock_has_the_projects_dependencies(name: str, python: str, machine: str) -> None:
    releases = pinned(name, python, machine)
    for text in ASKED[name]:
        asked = Requirement(text)
        if asked.marker is not None and not asked.marker.evaluate({"python_version": python}):
            continue
        if asked.name == "torch" and python != "3.11":
            assert "torch" not in releases
            continue
        found = releases.get(canonicalize_name(asked.name), "nothing")
        assert found != "nothing", f"{asked} is missing: make locks"
        assert asked.specifier.contains(found), f"{asked}, locked is {found}: make locks"
        for extra in asked.extras:
            assert f"{canonicalize_name(asked.name)}-{extra}" in releases


@pytest.mark.parametrize("name", ASKED)
def test_every_package_of_a_lock_has_digests_and_no_url(name: str) -> None:
    for requirement, digests in entries(name):
        assert digests and all(map(HASH.match, digests)), requirement
        assert requirement.url is None
    text = (SOURCE / "deploy/locks" / f"{name}.txt").read_text()
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|\s/\w", text)


def test_the_locks_agree_with_each_other_and_with_the_constraints() -> None:
    """The tests run with the installed releases; a tuner's host has one release of each package."""
    agent, tuner = (pinned(name, "3.11", "x86_64") for name in ("agent", "tuner"))
    assert agent.items() <= tuner.items()
    lines = (SOURCE / "constraints.txt").read_text().splitlines()
    named: dict[str, str] = {
        canonicalize_name(n): v for n, _, v in (line.partition("==") for line in lines)
    }
    other = {n: v for n, v in tuner.items() if named.get(n, v) != v.removesuffix("+cpu")}
    assert not other, f"make locks: {other}"
