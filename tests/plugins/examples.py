"""The complete examples of docs/examples.md and its files, with paths of a test's own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "examples.md"
FILES = PAGE.with_suffix("")
"""The folder of the files that the page links to."""
SUFFIXES = {"toml": ".toml", "python": ".py"}


def documented(name: str) -> str:
    """Return the file of a service by its name."""
    return (FILES / f"{name}.toml").read_text(encoding="utf-8")


class Example:
    """One section of the page: its blocks, and the commands that it tells to run."""

    def __init__(self, title: str) -> None:
        text = PAGE.read_text(encoding="utf-8")
        match = re.search(
            rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
        assert match, f"{PAGE} has no section {title!r}"
        self.title, self._text = title, match[1]

    def block(self, language: str) -> str:
        """Return the one block in a language, or the one file of it that the section links to."""
        blocks = re.findall(rf"^```{language}\n(.*?)^```", self._text, re.MULTILINE | re.DOTALL)
        links = re.findall(r"\((examples/[\w.]+)\)", self._text)
        files = [PAGE.parent / link for link in links if link.endswith(SUFFIXES.get(language, "/"))]
        texts = [*blocks, *(file.read_text(encoding="utf-8") for file in files)]
        assert len(texts) == 1, f"{self.title} has {len(texts)} texts of {language}"
        return str(texts[0])

    @property
    def commands(self) -> list[list[str]]:
        """The commands that stand for copying, in order."""
        return [
            shlex.split(line)
            for line in re.findall(r"^    (jouletune .+)$", self._text, re.MULTILINE)
        ]

    def inline(self, begins: str) -> str:
        """Return the one piece of a sentence that begins so."""
        (match,) = set(re.findall(rf"`({re.escape(begins)}[^`]+)`", self._text))
        return str(match)

    def file(self, changes: Mapping[str, str]) -> str:
        """Return its TOML with paths and ports of one's own in the place of the page's."""
        text = self.block("toml")
        for old, new in changes.items():
            assert old in text, f"the example {self.title} has no {old!r}"
            text = text.replace(old, new)
        return text
