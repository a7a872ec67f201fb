from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.text import corpus


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for k in range(2 * corpus.HELD_OUT):
        lines = "".join(f"value_{k}_{line} = {line}\n" for line in range(60))
        (tmp_path / f"module_{k:02d}.py").write_text(lines)
    for left_out in ("test", "site-packages", "pkg/tests"):
        (tmp_path / left_out).mkdir(parents=True)
        (tmp_path / left_out / "a.py").write_text("left = 'out'\n")
    return tmp_path


def test_tests_and_installed_packages_are_left_out(library: Path) -> None:
    assert [path.stem for path in corpus.files(library)] == [f"module_{k:02d}" for k in range(40)]


def test_prompts_come_from_files_that_nothing_is_trained_on(library: Path) -> None:
    trained_on = corpus.training_bytes(library)
    assert b"left" not in trained_on and b"value_1_0" in trained_on
    for prompt in corpus.prompts(50, 0, library):
        assert len(prompt) == corpus.PROMPT_BYTES
        assert prompt.startswith("value_") and prompt.encode() not in trained_on


def test_the_same_seed_gives_the_same_prompts(library: Path) -> None:
    assert corpus.prompts(9, 3, library) == corpus.prompts(9, 3, library)
    assert corpus.prompts(9, 3, library) != corpus.prompts(9, 4, library)


def test_the_standard_library_of_this_python_is_a_corpus() -> None:
    assert len(corpus.training_bytes()) > 1_000_000
