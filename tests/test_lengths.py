"""Limits on the length of sentences in pages and packages, and of pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PAGES = [
    *(TOP / f"{top}.md" for top in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((TOP / "docs").rglob("*.md")),
]
TEXTS = {".toml", ".service", ".timer", ".conf", ".rules", ".sh", ".html", ".yml", ".tmpfiles"}
"""Shipped files beside Python whose comments, or whose text, are read."""
FILES = sorted(
    file
    for room in ("tuner", "agents", "policies", "db", "deploy")
    for file in (TOP / room).rglob("*")
    if file.suffix in TEXTS | {".py"}
)
GENERATED = re.compile(r"<!-- figures: ([\w-]+) -->.*?<!-- end: \1 -->", re.DOTALL)
MOST_BYTES_A_PAGE = 12_000
"""Bytes of a page, without figures that a script writes between its marks."""
LONGEST = 30
"""Words in a sentence of a page; a line of code, a link or a number counts as one."""
LONGEST_MESSAGE, LONGEST_DOCSTRING = 36, 60
"""Words in a sentence of a string, and of a docstring; a list of causes counts as one."""
LONG = {"tuner/errors.py": "the tree of errors, drawn"}
"""Files with a longer sentence, with the reason."""


def name(file: Path) -> str:
    return str(file.relative_to(TOP))


def written(page: Path) -> str:
    """Return a page without the figures that a script writes."""
    return GENERATED.sub("", page.read_text(encoding="utf-8"))


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences of a page's paragraphs, items and cells."""
    text = re.sub(r"^(```|~~~).*?^\1", "", written(page), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4,}.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`\n]+`", "CODE", text))
    for line in text.splitlines():
        for part in () if re.fullmatch(r"[|\-\s:]*", line) else line.split("|"):
            yield from re.split(
                r"(?<=[.!?:;])\**\s+(?=[A-Z*(\"“‘'.\d])|;\s|:\s", part.strip(" *#-")
            )


def parts(node: ast.JoinedStr) -> str:
    """Return an f-string with a placeholder for each value."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
    )


def strings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield strings with a space and docstrings, each with its limit of words per sentence."""
    inner = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for child in ast.walk(node)
        if child is not node
    }
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            yield parts(node), LONGEST_MESSAGE
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value, LONGEST_DOCSTRING if id(node) in docs else LONGEST_MESSAGE


def texts(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the checked texts of a file, each with its limit of words per sentence."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield from strings(ast.parse(text))
    elif file.suffix == ".html":
        yield re.sub(r"<script.*?</script>|\{[{%#].*?[}%#]\}|<[^>]*>", " ", text), LONGEST_MESSAGE
    else:
        for line in text.splitlines():
            if line.lstrip().startswith("#") or file.suffix in {".sh", ".yml"}:
                yield line, LONGEST_MESSAGE


def too_long(file: Path) -> list[str]:
    if file.suffix == ".md":
        return [one for one in sentences(file) if len(one.split()) > LONGEST]
    return [
        sentence
        for text, most in texts(file)
        if len(text.split()) > most
        for sentence in re.split(
            r"(?<=[.!?:;,])\s+|\n\n", re.sub(r"`[^`]*`|\"[^\"\n]*\"", "CODE", text)
        )
        if len(sentence.split()) > most
    ]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_and_its_sentences_are_short(page: Path) -> None:
    assert not too_long(page)
    assert len(written(page).encode()) <= MOST_BYTES_A_PAGE


def test_no_sentence_of_the_packages_is_too_long() -> None:
    found = {name(file): long for file in FILES if (long := too_long(file))}
    assert set(found) == set(LONG), found


def test_a_long_sentence_is_found(tmp_path: Path) -> None:
    page, code = tmp_path / "page.md", tmp_path / "code.py"
    page.write_text(f"# Head\nIt waits. {'word ' * 40}.\n\n    {'code ' * 40}\n")
    code.write_text(f'"""It waits."""\nX = "a {"b " * 40}"\n')
    assert len(too_long(page)) == len(too_long(code)) == 1
