"""README and docs/ are short, plain English: no word of a private dialect, no sentence to read twice.

`ROOTS` is what is checked; Python files in it are checked by their strings and docstrings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
GOLDEN = TOP / "tests" / "golden"
"""What every command prints."""
TYPED = re.compile(r"^\$ .*$|'[^'\n]*'", re.MULTILINE)
"""The command lines in it, and the names that they use."""
ROOTS = ("README.md", "CONTRIBUTING.md", "docs")
"""Files and folders that are checked."""
GENERATED = re.compile(r"<!-- figures: ([\w-]+) -->.*?<!-- end: \1 -->", re.DOTALL)

WORDS = {
    r"in vain": "without result",
    r"as it comes|as they come": "by default",
    r"so many( of)?": "the number of",
    r"once and for good|once or for good": "transient or permanent",
    r"for good": "permanently",
    r"told": "reported, stated",
    r"(it|that|what|who|which) tells|tells (of|by|it|what|nothing)": "reports",
    r"said": "reported, stated",
    r"(is|are|was|were|be|been) asked( for)?": "requested",
    r"(is|are|was|were) known": "give the source, or 'unknown'",
    r"as (it was |they were )?found|found at": "original",
    r"stands (at|for|in|by|as|where)|how (it|a device|each device) stands": "is; status",
    r"(?<!^)who (is|are|has|reads|asks|follows|waits|runs|does)": "name the person or program",
    r"whoever|nobody|somebody": "name the person or program",
    r"what (is|was|it) (held|tried|set|there|asked|told|found|meant|lacking)": "use the noun",
    r"heed(s|ed)?": "follow, support",
    r"foretell(s|ing)?|foretold": "predict",
    r"anew": "again",
    r"at once, (all|each)": "together",
    r"goes on|go on|went on": "continues",
    r"hinders?": "prevents",
    r"likewise,": "also",
    r"let go of|lets go": "release",
    r"(put|puts|putting) back": "restore",
    r"taken up|takes up|take up": "resume, accept",
    r"falls? to the": "reverts to the",
    r"looked for|looks for it": "searched, checked",
    r"is lacking|it lacks": "missing",
    r"word by word": "exactly",
    r"does now what": "name the role",
    r"a yes|your yes|without a yes": "approval",
    r"fat as|dearer|dear\b": "expensive",
    r"beneath the": "below the",
    r"in the place of": "instead of",
    r"thrown away|throws? away": "discard",
    r"in spite of": "despite",
    r"beneath": "below",
    r"at hand": "available, installed",
    r"gone on|going on": "continue",
    r"told apart": "distinguish",
    r"how (it|they|(every )?devices?) stands?": "status",
    r"who (asked|said|knows|wants|does not|cannot)": "name the person or program",
    r"wished|wishes": "requested",
    r"mend|mends|mended": "fix",
    r"(made|makes?) known": "report",
    r"sooner or later": "give the time",
}
"""Words of a private dialect, and the field's replacement."""
PAGE_WORDS = {
    **WORDS,
    r"in force": "current, applied",
    r"go back|goes back|went back|gone back": "return, be restored",
    r"given back|gives? back": "return",
    r"looked at": "checked",
    r"likewise": "also, the same",
    r"left alone": "not changed",
    r"in doubt": "if uncertain",
    r"is none of": "is not one of",
    r"is believed|beliefs?": "predicted",
    r"but for": "except",
    r"everybody|everyone": "name the people or programs",
    r"goes? by (it|them|the)": "follow, use",
    r"lets? be": "keep",
}
"""Words that pages and the command line's output do without, and docstrings not yet."""
LONGEST = 30
"""Words in a sentence; a line of code, a link or a number counts as one."""
MOST_BYTES_A_PAGE = 12_000
"""Without figures that a script writes between its marks."""


def files() -> list[Path]:
    found = [TOP / root for root in ROOTS]
    return sorted(
        file
        for root in found
        for file in ([root] if root.is_file() else (*root.rglob("*.md"), *root.rglob("*.py")))
        if file.suffix == ".md" or "docs" not in file.parts
    )


PAGES = [file for file in files() if file.suffix == ".md"]


def name(file: Path) -> str:
    return str(file.relative_to(TOP))


def written(page: Path) -> str:
    """Return a page without the figures that a script writes."""
    return GENERATED.sub("", page.read_text(encoding="utf-8"))


def texts(file: Path) -> Iterator[str]:
    """Yield paragraphs, items and cells of a page; strings with a space of a Python file."""
    if file.suffix == ".py":
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield node.value
        return
    text = re.sub(r"^(```|~~~).*?^\1", "", written(file), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4,}.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`\n]+`", "CODE", text))
    for line in text.splitlines():
        if not re.fullmatch(r"[|\-\s:]*", line):
            yield from (part.strip(" *#-") for part in line.split("|") if part.strip())


def sentences(file: Path) -> Iterator[str]:
    for text in texts(file):
        yield from re.split(r"(?<=[.!?:;])\**\s+(?=[A-Z*(\"“‘'.\d])|;\s|:\s", text)


def wrong_words(text: str, words_of: Mapping[str, str] = WORDS) -> list[str]:
    """Return each word of the dialect in a text, with its replacement."""
    return [
        f"{found[0]!r} in {text[max(0, found.start() - 40) : found.end() + 30]!r}: {better}"
        for words, better in words_of.items()
        for found in re.finditer(rf"\b(?:{words})\b", text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("file", files(), ids=name)
def test_no_word_of_a_private_dialect(file: Path) -> None:
    found = [one for text in texts(file) for one in wrong_words(text, PAGE_WORDS)]
    assert not found, "\n".join(found)


def test_the_command_line_prints_no_word_of_a_private_dialect() -> None:
    printed = {
        name(file): TYPED.sub("", file.read_text(encoding="utf-8"))
        for file in sorted(GOLDEN.glob("*.txt"))
    }
    assert printed
    found = {
        page: wrong for page, text in printed.items() if (wrong := wrong_words(text, PAGE_WORDS))
    }
    assert not found


@pytest.mark.parametrize("file", files(), ids=name)
def test_no_sentence_is_too_long(file: Path) -> None:
    found = [one for one in sentences(file) if len(one.split()) > LONGEST]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_is_short(page: Path) -> None:
    assert len(written(page).encode()) <= MOST_BYTES_A_PAGE


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    page, code = tmp_path / "page.md", tmp_path / "code.py"
    page.write_text(
        f"# Head\nIt waits in vain. {'word ' * 40}.\n\n    in vain\n| a | `in vain` |\n"
    )
    code.write_text('WHY = "the tuner waits in vain"\n')
    assert [len(wrong_words(text)) for text in texts(page)] == [0, 1, 0, 0]
    assert [one for one in sentences(page) if len(one.split()) > LONGEST]
    assert sum(len(wrong_words(text)) for text in texts(code)) == 1
