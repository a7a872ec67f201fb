"""Generated files are equal to the output of their generator."""

from __future__ import annotations

from tests.generated import generated


def test_generated_files_equal_their_generators_output() -> None:
    stale = [file.name for file, text in generated().items() if file.read_text() != text]
    assert not stale, "run `make client`"
