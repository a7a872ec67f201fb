"""The replies of a round: which of them can be averaged, and the metrics that they report."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from tuner.core import JOULES_PER_KWH, LARGEST, Context, Origin

log = logging.getLogger(__name__)

EXAMPLES, SECONDS, JOULES, MEASURED, IDLE_W = (
    *("num-examples", "time-s", "energy-j"),
    *("energy-measured", "idle-w"),
)
OWN_GAIN = "own-gain"
"""The accuracy that a client gained by its training, on its local samples."""
COMPUTE_J, COMMUNICATION_J = "compute-j", "communication-j"
CLASS = "device-class"
MOST_QUERIES = 3
STATE = {
    "load": "load",
    "memory": "memory",
    "network-mbps": "network_mbps",
    "data-classes": "data_classes",
}
"""The metrics of a client's state, and their names in a round's state."""


@dataclass(frozen=True)
class ClientReply:
    """A reply that can be averaged: its client's node and class, its message, and its scalar metrics."""

    node: int
    kind: str
    message: Message
    metrics: Mapping[str, float]


@dataclass
class KnownClients:
    """The classes of the clients, and their latest reported states.

    A client counts as of the first class until it reports its own, in a reply to a query or to
    training. It is queried at most `MOST_QUERIES` times, because an app may not support the query.
    """

    classes: Sequence[str] = ("all",)
    kinds: dict[int, str] = field(default_factory=dict)
    latest: dict[int, Mapping[str, float]] = field(default_factory=dict)
    _queries: Counter[int] = field(default_factory=Counter)

    def to_query(self, nodes: Iterable[int]) -> list[int]:
        """Return the clients to query now, and count the queries; none if there is only one class."""
        unsure = [n for n in nodes if n not in self.kinds and self._queries[n] < MOST_QUERIES]
        chosen = unsure if len(self.classes) > 1 else []
        self._queries.update(chosen)
        return chosen

    def hear_class(self, reply: Message) -> None:
        """Record the class in a reply's config records; an unknown class is no answer."""
        for record in () if reply.has_error() else reply.content.config_records.values():
            if record.get(CLASS) in self.classes:
                self.kinds[reply.metadata.src_node_id] = str(record[CLASS])

    def kind(self, node: int) -> str:
        """Return a client's class; the first one while it is unknown."""
        return self.kinds.get(node, self.classes[0])

    def unknown(self, replies: Iterable[ClientReply]) -> int:
        """Return the number of replies from clients of an unknown class; 0 if there is only one class."""
        return sum(r.node not in self.kinds for r in replies) if len(self.classes) > 1 else 0

    def hear(self, replies: Iterable[ClientReply]) -> None:
        """Record the states that replies report."""
        for reply in replies:
            state = {n: reply.metrics[key] for key, n in STATE.items() if key in reply.metrics}
            self.latest[reply.node] = state

    def state(self) -> dict[str, float]:
        """Return the mean of each state metric per class, over the latest reports."""
        by_metric: dict[str, list[float]] = {}
        for node, latest in self.latest.items():
            for name, value in latest.items():
                by_metric.setdefault(f"{name}.{self.kind(node)}", []).append(value)
        return {name: fmean(values) for name, values in sorted(by_metric.items())}


def sound(
    replies: Iterable[Message], sent: ArrayRecord, clients: KnownClients, weight: str = EXAMPLES
) -> list[ClientReply]:
    """Return the replies that can be averaged, with the same names of records and metrics in each.

    Left out, with a log message each: errors; replies without exactly one record of arrays and one of
    metrics; arrays that cannot be read, or whose names or shapes differ from those sent; numbers that
    are not finite; and replies whose metric `weight` is not above 0.
    """
    shapes = {name: tuple(array.shape) for name, array in sent.items()}
    accepted = []
    for message in replies:
        why = _wrong(message, shapes, weight)
        node = message.metadata.src_node_id
        if why:
            log.warning("event=reply_left_out node=%d why=%r", node, why)
            continue
        (metrics,) = message.content.metric_records.values()
        scalars = {name: float(v) for name, v in metrics.items() if _length(v) == 0}
        accepted.append(ClientReply(node, clients.kind(node), message, scalars))
    _make_alike([reply.message for reply in accepted])
    return accepted


def round_metrics(
    replies: Sequence[ClientReply],
    classes: Sequence[str],
    wall_s: float,
    g_per_kwh: float | Mapping[str, float] | None,
) -> tuple[dict[str, float], Origin]:
    """Return the metrics of a round over all its replies, and the origin of its joules.

    Joules are reported only if every reply has them. For modelled joules, the idle energy of clients
    that wait for others is added if they report their idle power; a client's meter includes it already.
    """
    seconds = [r.metrics[SECONDS] for r in replies if SECONDS in r.metrics]
    shown = {"round_s": max(seconds) if len(seconds) == len(replies) and seconds else wall_s}
    shown["participated"] = float(len(replies))
    for kind in classes if len(classes) > 1 else ():
        own = [r.metrics.get(SECONDS) for r in replies if r.kind == kind]
        shown[f"participated_{kind}"] = float(len(own))
        if own and None not in own:
            shown[f"slowest_{kind}_s"] = max(s for s in own if s is not None)
    if not replies or not all(r.metrics.get(JOULES, -1.0) >= 0.0 for r in replies):
        return shown, Origin.MEASURED
    measured = all(r.metrics.get(MEASURED, 0.0) == 1.0 for r in replies)
    waits = [0.0 if measured else _waited(r, shown["round_s"]) for r in replies]
    joules = [r.metrics[JOULES] + wait for r, wait in zip(replies, waits, strict=True)]
    shown["energy_j"] = math.fsum(joules)
    if not measured:
        shown["waiting_j"] = math.fsum(waits)
    for key, name in ((COMPUTE_J, "compute_j"), (COMMUNICATION_J, "communication_j")):
        if all(key in r.metrics for r in replies):
            shown[name] = math.fsum(r.metrics[key] for r in replies)
    for kind in classes:
        of = [j for r, j in zip(replies, joules, strict=True) if r.kind == kind]
        shown[f"energy_{kind}_j"] = math.fsum(of)
    grams = _grams(replies, joules, g_per_kwh)
    if grams is not None:
        shown["carbon_g"] = grams
    return shown, Origin.MEASURED if measured else Origin.ESTIMATED


def _grams(
    replies: Sequence[ClientReply],
    joules: Sequence[float],
    g_per_kwh: float | Mapping[str, float] | None,
) -> float | None:
    """Return the carbon emissions of a round in grams; None if a client's class has no intensity."""
    if g_per_kwh is None:
        return None
    if not isinstance(g_per_kwh, Mapping):
        return math.fsum(joules) / JOULES_PER_KWH * g_per_kwh
    if any(reply.kind not in g_per_kwh for reply in replies):
        return None
    each = (j * g_per_kwh[r.kind] for r, j in zip(replies, joules, strict=True))
    return math.fsum(each) / JOULES_PER_KWH


def finite(context: Mapping[str, float]) -> Context:
    """Return the finite values of a state."""
    return {name: value for name, value in context.items() if math.isfinite(value)}


def _waited(reply: ClientReply, round_s: float) -> float:
    """Return the joules that a client used while it waited for the end of the round."""
    idle_s = max(0.0, round_s - reply.metrics.get(SECONDS, round_s))
    return reply.metrics.get(IDLE_W, 0.0) * idle_s


def _wrong(message: Message, shapes: Mapping[str, tuple[int, ...]], weight: str) -> str:
    """Return the reason why a reply cannot be averaged; empty if it can."""
    if message.has_error():
        return str(message.error.reason or f"error {message.error.code}")
    content = message.content
    if len(content.array_records) != 1 or len(content.metric_records) != 1:
        return "it does not have exactly one record of arrays and one of metrics"
    (arrays,) = content.array_records.values()
    (metrics,) = content.metric_records.values()
    try:
        read = {name: array.numpy() for name, array in arrays.items()}
        if {name: array.shape for name, array in read.items()} != shapes:
            return "its arrays do not have the names and shapes that were sent"
        if not all(np.isfinite(array).all() for array in read.values()):
            return "its arrays have numbers that are not finite"
    except Exception as error:  # noqa: BLE001  numpy may raise anything for a client's bytes
        return f"its arrays cannot be read: {error}"
    examples = metrics.get(weight)
    if _length(examples) != 0 or not examples > 0:
        return f"it has no {weight} above 0"
    return ""


def _length(value: object) -> int | None:
    """Return the length of a list metric, 0 for a number; None if the metric is empty or too large."""
    if isinstance(value, list):
        return (len(value) or None) if all(abs(v) <= LARGEST for v in value) else None
    return 0 if isinstance(value, int | float) and abs(value) <= LARGEST else None


def _make_alike(messages: Sequence[Message]) -> None:
    """Name all records as in the first reply, and keep only their common metrics, as Flower requires."""
    if not messages:
        return
    (first,) = messages[0].content.array_records
    (second,) = messages[0].content.metric_records
    lengths = [
        {(name, _length(v)) for name, v in metrics.items() if _length(v) is not None}
        for message in messages
        for metrics in message.content.metric_records.values()
    ]
    common = {name for name, _ in set.intersection(*lengths)}
    for message in messages:
        content = message.content
        ((first_was, arrays),) = content.array_records.items()
        ((second_was, metrics),) = content.metric_records.items()
        del content[first_was], content[second_was]
        content[first] = arrays
        content[second] = MetricRecord({n: v for n, v in metrics.items() if n in common})
