"""The replies, and the parts of them, that may be averaged."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower has an environment of its own: make test-federated")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from agents.federated.replies import KnownClients, sound
from jouletune_bench.fleet.weights import arrays_of
from tests.federated.grid import identified

SENT = arrays_of((np.zeros((2, 3)), np.zeros(3)))
NAME, OTHER = list(SENT)


@pytest.fixture(autouse=True)
def _identified() -> None:
    identified()


def reply(
    arrays: ArrayRecord, metrics: Mapping[str, int | float | list[int] | list[float]], node: int = 1
) -> Message:
    query = Message(RecordDict(), dst_node_id=node, message_type="train")
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(dict(metrics))})
    return Message(content, reply_to=query)


def array(data: bytes) -> Array:
    """Return an array that claims the sent shape, with any bytes."""
    return Array(dtype="float64", shape=(2, 3), stype="numpy.ndarray", data=data)


def left_out(message: Message, caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level(logging.WARNING)
    good = reply(arrays_of((np.ones((2, 3)), np.ones(3))), {"num-examples": 3})
    assert [r.message for r in sound([message, good], SENT, KnownClients())] == [good]
    return caplog.text


@pytest.mark.parametrize("data", [b"", b"no array", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'"])
def test_bytes_that_are_not_an_array_are_left_out(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ArrayRecord({NAME: array(data), OTHER: SENT[OTHER]})
    assert "cannot be read" in left_out(reply(broken, {"num-examples": 3}), caplog)


def test_bytes_of_another_shape_than_they_claim_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = ArrayRecord({NAME: array(Array(np.ones((1, 3))).data), OTHER: SENT[OTHER]})
    assert "shapes that were sent" in left_out(reply(broken, {"num-examples": 3}), caplog)


@pytest.mark.parametrize("examples", [0, -1, float("nan"), float("inf"), 1e308, [3]])
def test_a_reply_that_cannot_be_weighed_is_left_out(
    examples: float, caplog: pytest.LogCaptureFixture
) -> None:
    assert "num-examples" in left_out(reply(SENT, {"num-examples": examples}), caplog)


def test_metrics_that_lack_a_mean_are_not_averaged_and_the_others_stay_as_they_are() -> None:
    first = reply(SENT, {"num-examples": 3, "loss": 0.5, "per-label": [0.1, 0.2], "own": 1.0})
    second = reply(SENT, {"num-examples": 4, "loss": float("nan"), "per-label": [0.3, 0.4]})
    accepted = sound([first, second], SENT, KnownClients())
    kept = [dict(r.message.content["metrics"]) for r in accepted]
    assert kept == [
        {"num-examples": 3, "per-label": [0.1, 0.2]},
        {"num-examples": 4, "per-label": [0.3, 0.4]},
    ]
    assert accepted[0].metrics == {"num-examples": 3.0, "loss": 0.5, "own": 1.0}


def test_lists_of_other_lengths_are_not_averaged() -> None:
    first = reply(SENT, {"num-examples": 3, "per-label": [0.1, 0.2]})
    second = reply(SENT, {"num-examples": 4, "per-label": [0.3]})
    accepted = sound([first, second], SENT, KnownClients())
    assert [set(r.message.content["metrics"]) for r in accepted] == [{"num-examples"}] * 2


def test_records_of_other_names_are_averaged_with_the_rest() -> None:
    usual = reply(SENT, {"num-examples": 3})
    content = RecordDict({"model": SENT, "told": MetricRecord({"num-examples": 4})})
    odd = Message(content, reply_to=Message(RecordDict(), dst_node_id=2, message_type="train"))
    for replies in ([usual, odd], [odd, usual]):
        names = {tuple(sorted(r.message.content)) for r in sound(replies, SENT, KnownClients())}
        assert len(names) == 1


def test_the_weight_may_have_another_name() -> None:
    first, second = reply(SENT, {"samples": 3}), reply(SENT, {"num-examples": 3})
    assert [r.message for r in sound([first, second], SENT, KnownClients(), "samples")] == [first]
