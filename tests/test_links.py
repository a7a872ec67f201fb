"""Every link in README, CONTRIBUTING, CHANGELOG and docs/ leads to a file or an anchor that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")])
CODE = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(
    r"`((?:docs|deploy|tests|tuner|agents|policies|db)/[\w./-]+\.(?:md|py|toml|sh))`"
)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    heads = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M
    )
    kept = (re.sub(r"[^\w\- ]", "", head.replace("`", "")).strip().lower() for head in heads)
    return frozenset(re.sub(r"\s+", "-", head) for head in kept)


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in LINK.findall(CODE.sub("", page.read_text())):
            if not target.startswith(("http://", "https://")):
                yield page, target


def broken(page: Path, target: str) -> str:
    """Return the fault of a link; empty if its target exists."""
    file, _, anchor = target.partition("#")
    found = (page.parent / file).resolve() if file else page
    if not found.exists():
        return f"{file} does not exist"
    if anchor and anchor not in anchors(found):
        return f"{found.name} has no heading #{anchor}; it has {', '.join(sorted(anchors(found)))}"
    return ""


@pytest.mark.parametrize(
    ("page", "target"),
    list(links()),
    ids=lambda part: part.name if isinstance(part, Path) else part,
)
def test_every_link_leads_somewhere(page: Path, target: str) -> None:
    assert not broken(page, target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = set(NAMED.findall(page.read_text()))
    assert {name for name in named if not (TOP / name).exists()} == set()


def test_a_link_to_nowhere_is_found() -> None:
    page = TOP / "README.md"
    assert broken(page, "docs/nowhere.md") and broken(page, "docs/operate.md#nowhere")
    assert not broken(page, "docs/operate.md")
