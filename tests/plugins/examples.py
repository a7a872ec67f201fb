"""The complete examples of docs/examples.md and its files, with the paths of a test."""

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
    """Return the text of a service's file by its name."""
    return (FILES / f"{name}.toml").read_text(encoding="utf-8")


class Example:
    """One section of the page: its code blocks and its commands."""

    def __init__(self, title: str) -> None:
        text = PAGE.read_text(encoding="utf-8")
        match = re.search(
            rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
        assert match, f"{PAGE} has no section {title!r}"
        self.title, self._text = title, match[1]

    def block(self, language: str) -> str:
        """Return the section's only block in a language, or the only linked file in that language."""
        blocks = re.findall(rf"^```{language}\n(.*?)^```", self._text, re.MULTILINE | re.DOTALL)
        links = re.findall(r"\((examples/[\w.]+)\)", self._text)
        files = [PAGE.parent / link for link in links if link.endswith(SUFFIXES.get(language, "/"))]
        texts = [*blocks, *(file.read_text(encoding="utf-8") for file in files)]
        assert len(texts) == 1, f"{self.title} has {len(texts)} texts of {language}"
        return str(texts[0])

    @property
    def commands(self) -> list[list[str]]:
        """The `jouletune` commands of the section, in order."""
        return [
            shlex.split(line)
            for line in re.findall(r"^    (jouletune .+)$", self._text, re.MULTILINE)
        ]

    def inline(self, begins: str) -> str:
        """Return the only inline code that starts with `begins`."""
        (match,) = set(re.findall(rf"`({re.escape(begins)}[^`]+)`", self._text))
        return str(match)

    def file(self, changes: Mapping[str, str]) -> str:
        """Return the TOML of the section with other paths and ports: `changes` by their old text."""
        text = self.block("toml")
        for old, new in changes.items():
            assert old in text, f"the example {self.title} has no {old!r}"
            text = text.replace(old, new)
        return text
