from __future__ import annotations

import torch

from tests.engines.text.model import KeyValueCache, TextModel
from tests.engines.text.tests.tiny import tiny


def cache_of(model: TextModel, slots: int) -> KeyValueCache:
    return KeyValueCache(model.config, slots, torch.device("cpu"), torch.float32)


def test_piece_by_piece_it_reads_as_it_does_at_once() -> None:
    model = tiny(2, 64, 0)
    tokens = torch.randint(0, 256, (1, 20))
    whole, cache, pieces = model(tokens), cache_of(model, 1), []
    for start, end in ((0, 7), (7, 8), (8, 20)):
        pieces.append(model.extend(tokens[:, start:end], torch.tensor([start]), cache))
    assert torch.allclose(torch.cat(pieces, 1), whole, atol=1e-4)


def test_rows_of_different_lengths_do_not_see_each_other() -> None:
    model, tokens = tiny(2, 64, 0), torch.randint(0, 256, (3, 12))
    cache, lengths = cache_of(model, 4), (3, 11, 7)
    for slot, length in enumerate(lengths):
        model.extend(tokens[slot : slot + 1, :length], torch.tensor([0]), cache, slot)
    following = torch.stack([tokens[k, n : n + 1] for k, n in enumerate(lengths)])
    together = model.extend(following, torch.tensor(lengths), cache)
    for slot, length in enumerate(lengths):
        alone = model(tokens[slot : slot + 1, : length + 1])[0, -1]
        assert torch.allclose(together[slot, 0], alone, atol=1e-4)


def test_rejected_tokens_are_overwritten() -> None:
    model, tokens = tiny(2, 64, 0), torch.randint(0, 256, (1, 10))
    cache = cache_of(model, 1)
    model.extend(tokens[:, :4], torch.tensor([0]), cache)
    model.extend(torch.randint(0, 256, (1, 5)), torch.tensor([4]), cache)
    again = model.extend(tokens[:, 4:6], torch.tensor([4]), cache)
    assert torch.allclose(again, model(tokens[:, :6])[:, 4:], atol=1e-4)


def test_a_moved_sequence_continues_where_it_was() -> None:
    model, tokens = tiny(2, 64, 0), torch.randint(0, 256, (1, 9))
    cache = cache_of(model, 3)
    model.extend(tokens[:, :8], torch.tensor([0]), cache, 2)
    cache.move(2, 0, 8)
    assert torch.allclose(
        model.extend(tokens[:, 8:], torch.tensor([8]), cache), model(tokens)[:, 8:], atol=1e-4
    )
