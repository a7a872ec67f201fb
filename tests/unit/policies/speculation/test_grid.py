"""The settings that are choices: by the roles of knobs, independent of their names."""

from __future__ import annotations

from policies.speculation.grid import Choice, choices, chosen
from tuner.core import Knob, Part, Role, Setting, Space

LENGTH = Knob("num_draft_tokens", (0, 2, 4), 2, Part.WORKLOAD, role=Role.SPECULATION_LENGTH)
DRAFT = Knob("proposer", ("deep", "ngram"), "ngram", Part.WORKLOAD, role=Role.DRAFT)
CLOCK = Knob("gpu.clock_mhz", (500, 1000), 1000)


def test_without_drafting_every_draft_is_one() -> None:
    by_choice = choices(Space((CLOCK, LENGTH, DRAFT)))
    assert len(by_choice) == 1 + 2 * 2
    assert by_choice[Choice(0, ("ngram",))] == {
        "gpu.clock_mhz": 1000,
        "num_draft_tokens": 0,
        "proposer": "ngram",
    }


def test_settings_of_other_knobs_are_not_choices() -> None:
    by_choice = choices(Space((CLOCK, LENGTH)))
    assert chosen(by_choice, {"gpu.clock_mhz": 1000, "num_draft_tokens": 4}) == Choice(4, ())
    assert chosen(by_choice, {"gpu.clock_mhz": 500, "num_draft_tokens": 4}) is None


def test_only_listed_settings_are_choices() -> None:
    listed: tuple[Setting, ...] = (
        {"num_draft_tokens": 2, "proposer": "ngram"},
        {"num_draft_tokens": 0, "proposer": "deep"},
    )
    by_choice = choices(Space((LENGTH, DRAFT), listed))
    assert list(by_choice.values()) == [listed[1], listed[0]]
