from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engines.text.ngram import lookup
from tests.engines.text.tokenizer import decode, encode


def after(text: str, count: int) -> str:
    return decode(lookup(encode(text), count))


def test_the_continuation_of_an_earlier_match_is_proposed() -> None:
    assert after("self.width = width\nself.height = height\nself.wid", 5) == "th = "


def test_the_latest_and_longest_match_counts() -> None:
    assert after("an apple, an onion, an a", 4) == "pple"
    assert after("x = 1; x = 2; x =", 2) == " 2"


def test_a_repetition_in_the_text_is_continued() -> None:
    assert after("ababab", 5) == "ababa"


def test_without_a_match_the_last_token_is_repeated() -> None:
    assert after("abcdef", 3) == "fff"


@given(tokens=st.lists(st.integers(0, 257), min_size=1, max_size=60), count=st.integers(0, 12))
def test_any_text_is_continued_by_the_requested_number_of_tokens(
    tokens: list[int], count: int
) -> None:
    proposed = lookup(tokens, count)
    assert len(proposed) == count
    assert set(proposed) <= set(tokens)
