"""Generated files are equal to the output of their generator."""

from __future__ import annotations

from tests.generated import generated


def test_what_is_generated_is_as_it_is_written() -> None:
    stale = [file.name for file, text in generated().items() if file.read_text() != text]
    assert not stale, "run `make client`"
