"""Variants of a policy: from a file, and without one rule at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.bench.contest.tuners import Tuner, policy_of
from tests.bench.contest.variants import load_variants, without_each
from tests.errors import raised
from tuner.core import ConfigError, Done, InvalidInput, Past, Plan, Safety, Suggestion

FILE = """\
[bold]
options = {dials = {violation = 0.5}}

[timid]
safety = "strict"
without = ["leap"]
"""


class Dialled:
    """A policy with rules and dials."""

    rules = ("leap", "look")

    def __init__(
        self, *, dials: Mapping[str, float] | None = None, without: frozenset[str] = frozenset()
    ) -> None:
        self.dials, self.without = dials or {}, without

    def suggest(self, past: Past) -> Suggestion:
        return Done(Plan.single(past.study.baseline), "enough")


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.contest.tuners.load_tuner", lambda _: Dialled())


def made(tuner: Tuner) -> Dialled:
    policy = policy_of(tuner)
    assert isinstance(policy, Dialled)
    return policy


@pytest.mark.usefixtures("dialled")
def test_a_file_names_variants_and_their_differences(tmp_path: Path) -> None:
    file = tmp_path / "variants.toml"
    file.write_text(FILE)
    variants = load_variants(file)
    assert list(variants) == ["bold", "timid"]
    assert (variants["bold"].safety, variants["timid"].safety) == (Safety.BALANCED, Safety.STRICT)
    assert made(variants["bold"]).dials == {"violation": 0.5}
    assert made(variants["bold"]).without == frozenset()
    assert made(variants["timid"]).without == {"leap"}


@pytest.mark.usefixtures("dialled")
def test_each_rule_is_left_out_separately() -> None:
    variants = without_each(["leap", "look"])
    assert list(variants) == ["ours-without-leap", "ours-without-look"]
    assert made(variants["ours-without-look"]).without == {"look"}
    with raised(InvalidInput, "luck") as caught:
        policy_of(without_each(["luck"])["ours-without-luck"])
    assert "leap, look" in str(caught.value.hint)


@pytest.mark.usefixtures("dialled")
def test_options_that_a_policy_does_not_take_are_refused() -> None:
    with raised(InvalidInput, "colour"):
        policy_of(Tuner("polythrottle", options={"colour": "red"}))


def test_an_unknown_rule_of_a_policy_is_refused() -> None:
    with raised(InvalidInput, "sobol", "leap"):
        policy_of(Tuner("sobol", without=frozenset({"leap"})))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no variant"),
        ("[a\n", "not valid TOML"),
        ("a = 3\n", "must be a table"),
        ("[ours]\n", "there already"),
        ("[a]\nsaftey = 'off'\n", "did you mean safety"),
        ("[a]\nsafety = 'high'\n", "safety cannot be 'high'"),
        ("[a]\nwithout = [3]\n", "list of names"),
        ("[a]\noptions = 3\n", "options must be a table"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "variants.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_variants(file)
    assert words in f"{caught.value} {caught.value.hint}"
    with raised(ConfigError, "read"):
        load_variants(tmp_path / "none.toml")
