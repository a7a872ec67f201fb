"""Tables judged on decoders of known costs."""

from __future__ import annotations

import random

import pytest

from tests.bench.speculation.synthetic import (
    DECODERS,
    collapsed,
    decoder_named,
    judged,
    slow_draft,
)
from tests.errors import raised
from tuner.core import InvalidInput


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_a_table_never_loses_to_plain_decoding_and_is_near_the_oracle(name: str) -> None:
    judgement = judged(name, DECODERS[name], [0, 1])
    assert judgement.over_plain_least >= 0.98
    assert judgement.over_oracle_mean >= 0.96


@pytest.mark.slow
def test_with_the_fallback_a_collapse_of_acceptance_costs_almost_nothing() -> None:
    collapse = collapsed([0])
    assert collapse.over_plain_least >= 0.98
    assert collapse.over_plain_without_fallback < 0.98


def test_another_decoder_is_named_by_its_module() -> None:
    make = decoder_named("tests.bench.speculation.synthetic:slow_draft")
    assert make is slow_draft
    assert make(random.Random(0)).throughput(1, {"length": 0}) > 0.0


@pytest.mark.parametrize("text", ["nowhere:x", "tests.bench.speculation.synthetic:none", "", "x"])
def test_a_decoder_that_is_not_there_is_refused_by_name(text: str) -> None:
    with raised(InvalidInput, repr(text), "module:NAME"):
        decoder_named(text)
