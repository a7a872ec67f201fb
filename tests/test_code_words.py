"""Strings, docstrings and comments of the code are plain English: the word list of README and docs/.

What a person reads of the packages is checked: messages, help, events, metrics' help, templates, and the
comments of shipped configuration.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_words import TOP, WORDS, name, wrong_words

ROOMS = ("tuner", "agents", "policies", "db", "deploy")
TEXTS = {".toml", ".service", ".timer", ".conf", ".rules", ".sh", ".html", ".yml", ".tmpfiles"}
"""Shipped files beside Python whose comments, or whose text, are read."""
ANY = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
"""A text without any word of the list needs no second look."""
LONGEST_MESSAGE, LONGEST_SENTENCE = 36, 60
"""Words in a sentence of a string, and of a docstring or a comment; a list of causes counts as one."""
LONG = {"tuner/errors.py": "the tree of errors, drawn"}
"""A file with a sentence that is longer, with the reason."""


def files() -> list[Path]:
    every = (file for room in ROOMS for file in (TOP / room).rglob("*") if file.is_file())
    return sorted(file for file in every if file.suffix in TEXTS | {".py"})


FILES = files()


def parts(node: ast.JoinedStr) -> str:
    """Return an f-string with a placeholder for each value."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
    )


def strings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield strings with a space and docstrings, each with the words that a sentence may have."""
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
            yield node.value, LONGEST_SENTENCE if id(node) in docs else LONGEST_MESSAGE


def texts(file: Path) -> Iterator[tuple[str, int]]:
    """Yield what is read of a file, each with the words that a sentence of it may have."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        yield from strings(ast.parse(text))
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string, LONGEST_SENTENCE
    elif file.suffix == ".html":
        yield re.sub(r"<script.*?</script>|\{[{%#].*?[}%#]\}|<[^>]*>", " ", text), LONGEST_MESSAGE
    else:
        for line in text.splitlines():
            if line.lstrip().startswith("#") or file.suffix in {".sh", ".yml"}:
                yield line, LONGEST_MESSAGE


def plain(text: str) -> str:
    """Return a text without quoted code."""
    return re.sub(r"`[^`]*`|\"[^\"\n]*\"", "CODE", text)


def wrong(file: Path) -> list[str]:
    return [one for text, _ in texts(file) if ANY.search(text) for one in wrong_words(plain(text))]


def too_long(file: Path) -> list[str]:
    return [
        sentence
        for text, most in texts(file)
        if len(text.split()) > most
        for sentence in re.split(r"(?<=[.!?:;,])\s+|\n\n", plain(text))
        if len(sentence.split()) > most
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_no_word_of_a_private_dialect(room: str) -> None:
    inside = [file for file in FILES if name(file).startswith(room)]
    assert not {name(file): found for file in inside if (found := wrong(file))}


def test_no_sentence_is_too_long() -> None:
    found = {name(file): long for file in FILES if (long := too_long(file))}
    assert set(found) == set(LONG), found


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text(
        f'"""It waits in vain."""\nWHY = f"{{1}} waits in vain"  # in vain\nX = "a {"b " * 40}"\n'
    )
    assert len(wrong(code)) == 3 and len(too_long(code)) == 1
