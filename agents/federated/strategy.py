"""FedGPO as a strategy for Flower's message API; a tuner sets K, B and E of each round.

K is the number of participants, B their batch size, and E their local epochs.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from statistics import fmean

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from agents.federated.ports import RoundOutcome, RoundTuner
from agents.federated.replies import (
    EXAMPLES,
    JOULES,
    OWN_GAIN,
    KnownClients,
    finite,
    round_metrics,
    sound,
)
from tuner.core import InvalidInput, Knob, Now, Origin, Role, Setting, TimeSeries

log = logging.getLogger(__name__)

ACCURACY = "accuracy"
CONFIG = "config"
FIXED_CLIENTS, WEIGHT = "num_sampled_clients", "weighted_by_key"
"""Attributes of Flower's wrappers for differential privacy, and of its strategies with a weighted mean."""
BATCH, EPOCHS, STEPS = "batch-size", "local-epochs", "averaging-steps"
ROUND = "server-round"
ROUNDS_LEFT = "rounds_left"
"""The entry of a round's context with the number of rounds left, this one included."""
WAIT_S = 10.0
"""Seconds without a new client after which a round starts with the clients present, at least one. Also
the longest wait for the classes of clients, if they decide a round's settings."""
LOOK_S = 1.0


class FedGPO(Strategy):  # type: ignore[misc,unused-ignore]
    """Takes the number of participants, batch sizes and epochs from a tuner; averages by `inner`.

    Clients receive `batch-size` and `local-epochs` in their message's config, `averaging-steps` if the
    steps between two averagings are a knob, and all entries of the inner strategy. If there are several
    classes, clients report theirs as `device-class` in a config record of their replies to queries and to
    training. Beside `num-examples`, their metrics may have `energy-j` (with `energy-measured` 1 if a meter
    measured it), `time-s`, `idle-w`, `load`, `memory`, `network-mbps`, `data-classes` and `own-gain`. The
    accuracy is the metric `accuracy` of `evaluate_fn`, or else of the clients' evaluation.

    `g_per_kwh` is the carbon intensity of the clients' electricity: one value for all, one per class, or a
    `tuner.core.TimeSeries`, which is read at the end of each round.

    Raises InvalidInput for an inner strategy with a fixed number of clients, because the noise and the
    accounting of differential privacy hold only for that number.
    """

    def __init__(
        self,
        tuner: RoundTuner,
        inner: Strategy | None = None,
        *,
        seed: int = 0,
        g_per_kwh: float | Mapping[str, float] | TimeSeries | None = None,
        wait_s: float = WAIT_S,
        now: Now = lambda: datetime.now(UTC),
    ) -> None:
        self._tuner = tuner
        self._inner = inner if inner is not None else FedAvg()
        if hasattr(self._inner, FIXED_CLIENTS):
            raise InvalidInput(
                f"{type(self._inner).__name__} is made for one number of clients ({FIXED_CLIENTS}), "
                "and FedGPO changes that from round to round",
                hint="give FedGPO the inner strategy, or train without FedGPO",
            )
        self._seed, self._g_per_kwh, self._wait_s = seed, g_per_kwh, wait_s
        self._now = now
        self._clients = KnownClients(self._classes)
        self._queries: set[str] = set()
        """The round's queries without a reply. Not kept for longer: Flower may fail on expired ones."""
        self._grid: Grid | None = None
        self._accuracy: float | None = None
        self._round: _OpenRound | None = None
        self._sent = ArrayRecord()
        self._result = Result()
        self._present = self._rounds = 0

    def _intensity(self) -> float | Mapping[str, float] | None:
        """Return the current carbon intensity in g/kWh."""
        given = self._g_per_kwh
        return given.at(self._now()) if isinstance(given, TimeSeries) else given

    def summary(self) -> None:
        """Log the summary of the inner strategy."""
        self._inner.summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train for up to `num_rounds` rounds, or until the tuner reports that the goal is reached.

        The last round is reported to the tuner before the return.
        """

        def evaluated(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            """Evaluate on the server, and record the metrics for the result."""
            assert evaluate_fn is not None
            metrics = evaluate_fn(number, arrays)
            self._see(metrics)
            if metrics is not None:
                self._result.evaluate_metrics_serverapp[number] = metrics
            return metrics

        self._rounds = num_rounds
        watched = None if evaluate_fn is None else evaluated
        self._result = Result()
        try:
            return super().start(
                grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, watched
            )
        except _GoalReached as reached:
            log.info("event=training_ended why=%r", str(reached))
            return self._result
        finally:
            self._report()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's message for each participant, with the batch size and epochs added.

        Only the content of the inner strategy's messages is used, not its choice of clients. If it has
        no messages, there is no round.
        """
        self._report()
        messages = self._inner.configure_train(server_round, arrays, config, grid)
        contents = {m.metadata.dst_node_id: m.content for m in messages}
        if not contents:
            return []
        usual = next(iter(contents.values()))
        state = self._state(server_round)
        setting = self._tuner.begin(state)
        if self._tuner.ended:
            self._result.arrays = arrays
            raise _GoalReached(self._tuner.ended)
        self._round = _OpenRound(setting, state, self._accuracy)
        self._sent = arrays
        nodes = self._chosen(grid, server_round, int(setting[self._knob(Role.PARTICIPANTS)]))
        self._query_classes(grid, nodes, setting)
        return [
            Message(
                content=self._instructions(contents.get(node, usual), server_round, node, setting),
                message_type=MessageType.TRAIN,
                dst_node_id=node,
            )
            for node in nodes
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the sound replies by the inner strategy; the round has failed if there are none."""
        all_ = list(replies)
        self._hear_classes(all_)
        self._queries.clear()
        weight = getattr(self._inner, WEIGHT, EXAMPLES)
        good = sound(all_, self._sent, self._clients, weight)
        self._clients.hear(good)
        if unknown := self._clients.unknown(good):
            log.warning(
                "event=class_not_told clients=%d of=%d taken_as=%s",
                unknown,
                len(good),
                self._classes[0],
            )
        if self._round is not None:
            shown, self._round.origin = round_metrics(
                good, self._classes, self._round.seconds, self._intensity()
            )
            gains = [r.metrics[OWN_GAIN] for r in good if OWN_GAIN in r.metrics]
            self._round.own_gain = fmean(gains) if gains else None
            self._round.metrics = {**shown, "failed": float(len(all_) - len(good))}
            if not good:
                self._round.failed = f"none of {len(all_)} replies could be used"
            elif "energy_j" not in shown:
                log.warning(
                    "event=no_joules_reported round=%d why='not every client reports %s'",
                    server_round,
                    JOULES,
                )
        if not good:
            return None, None
        arrays, metrics = self._inner.aggregate_train(server_round, [r.message for r in good])
        if metrics is not None:
            self._result.train_metrics_clientapp[server_round] = metrics
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages for the evaluation by clients."""
        messages: Iterable[Message] = self._inner.configure_evaluate(
            server_round, arrays, config, grid
        )
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Combine the clients' evaluations by the inner strategy."""
        answered = [reply for reply in replies if not reply.has_error()]
        metrics = self._inner.aggregate_evaluate(server_round, answered) if answered else None
        if metrics is not None:
            self._result.evaluate_metrics_clientapp[server_round] = metrics
        self._see(metrics)
        return metrics

    @property
    def _classes(self) -> list[str]:
        """The classes of clients, from the names of the batch size knobs."""
        knobs = [k for k in self._tuner.space.knobs if k.role is Role.LOCAL_BATCH]
        return [knob.name.rpartition(".")[2] for knob in knobs]

    def _knob(self, role: Role, kind: str = "") -> str:
        """Return the name of a role's knob for a class; that of the first class if it is unknown."""
        knobs: list[Knob] = [k for k in self._tuner.space.knobs if k.role is role]
        own = [k for k in knobs if k.name.rpartition(".")[2] == kind]
        return (own or knobs)[0].name

    def _instructions(
        self, content: RecordDict, server_round: int, node: int, setting: Setting
    ) -> RecordDict:
        """Return a message's content with the round's settings for a node added to its config."""
        name = next(iter(content.config_records), CONFIG)
        kind = self._clients.kind(node)
        by_steps = [k.name for k in self._tuner.space.knobs if k.role is Role.AVERAGING_STEPS]
        config = {
            **dict(content.config_records.get(name, {})),
            **({STEPS: int(setting[by_steps[0]])} if by_steps else {}),
            ROUND: server_round,
            BATCH: int(setting[self._knob(Role.LOCAL_BATCH, kind)]),
            EPOCHS: int(setting[self._knob(Role.LOCAL_EPOCHS, kind)]),
        }
        return RecordDict({**dict(content), name: ConfigRecord(config)})

    def _chosen(self, grid: Grid, server_round: int, count: int) -> list[int]:
        """Wait for enough clients; return participants that are drawn by seed and round.

        The wait ends after `wait_s` seconds without a new client. It is not repeated in later rounds
        while the number of clients stays the same.
        """
        present, until = 0, time.monotonic() + self._wait_s
        while len(nodes := sorted(grid.get_node_ids())) < count:
            if nodes and len(nodes) == self._present:
                break
            if len(nodes) > present:
                present, until = len(nodes), time.monotonic() + self._wait_s
                log.info("event=waiting_for_clients there=%d wanted=%d", present, count)
            elif time.monotonic() >= until and (nodes or not self._wait_s):
                break
            time.sleep(min(LOOK_S, self._wait_s))
        self._present = len(nodes) if len(nodes) < count else 0
        dice = random.Random(f"{self._seed} {server_round}")
        return dice.sample(nodes, min(count, len(nodes)))

    def _query_classes(self, grid: Grid, nodes: Iterable[int], setting: Setting) -> None:
        """Query the clients whose class is unknown; wait for it only if the setting differs by class.

        Later replies, as of clients that still start, are read with those of the training.
        """
        self._grid = grid
        queries = [
            Message(content=RecordDict(), message_type=MessageType.QUERY, dst_node_id=node)
            for node in self._clients.to_query(nodes)
        ]
        sent = {one for one in grid.push_messages(queries) if one} if queries else set()
        self._queries |= sent
        settings = {
            tuple(setting[self._knob(r, kind)] for r in (Role.LOCAL_BATCH, Role.LOCAL_EPOCHS))
            for kind in self._classes
        }
        until = time.monotonic() + (self._wait_s if len(settings) > 1 else 0.0)
        self._hear_classes()
        while self._queries & sent and time.monotonic() < until:
            time.sleep(min(LOOK_S, self._wait_s))
            self._hear_classes()

    def _hear_classes(self, replies: Iterable[Message] = ()) -> None:
        """Record the classes in replies to training, and in those to queries that have come since."""
        late: Iterable[Message] = ()
        if self._grid is not None and self._queries:
            late = self._grid.pull_messages(list(self._queries))
        for reply in (*late, *replies):
            self._queries.discard(reply.metadata.reply_to_message_id)
            self._clients.hear_class(reply)

    def _state(self, server_round: int) -> dict[str, float]:
        """Return the state at the start of a round, for the tuner."""
        state = {"round": float(server_round), **self._clients.state()}
        if self._accuracy is not None:
            state[ACCURACY] = self._accuracy
        if self._rounds:
            state[ROUNDS_LEFT] = float(self._rounds - server_round + 1)
        return state

    def _see(self, metrics: MetricRecord | None) -> None:
        """Record the accuracy of an evaluation, if it has one."""
        value = None if metrics is None else metrics.get(ACCURACY)
        if isinstance(value, int | float):
            self._accuracy = float(value)
            if self._round is not None and self._round.metrics:
                self._round.accuracy = self._accuracy

    def _report(self) -> None:
        """Report the last round to the tuner; not earlier, because its accuracy is evaluated afterwards."""
        over, self._round = self._round, None
        if over is None:
            return
        shown = dict(over.metrics)
        if over.accuracy is not None:
            shown[ACCURACY] = over.accuracy
            if over.before is not None:
                shown["accuracy_gain"] = over.accuracy - over.before
                if over.own_gain is not None:
                    shown["skew_loss"] = over.own_gain - shown["accuracy_gain"]
        self._tuner.end(
            RoundOutcome(
                metrics=shown,
                origin=over.origin,
                context=finite(over.state),
                seconds=over.seconds,
                failed=over.failed or ("" if over.metrics else "no replies"),
            )
        )


def clients_there(grid: Grid, wait_s: float = WAIT_S) -> int:
    """Return the number of clients, once there is one and no new one has connected for `wait_s` seconds."""
    present, until = 0, time.monotonic() + wait_s
    while not present or time.monotonic() < until:
        now = len(list(grid.get_node_ids()))
        if now > present:
            present, until = now, time.monotonic() + wait_s
        time.sleep(min(LOOK_S, max(0.01, wait_s)))
    return present


class _GoalReached(Exception):
    """Ends the training, because its goal is reached."""


class _OpenRound:
    """A round in progress."""

    def __init__(self, setting: Setting, state: Mapping[str, float], before: float | None) -> None:
        self.setting, self.state, self.before = setting, state, before
        self.metrics: dict[str, float] = {}
        self.origin, self.failed = Origin.ESTIMATED, ""
        self.accuracy: float | None = None
        self.own_gain: float | None = None
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds since the round began."""
        return time.monotonic() - self._began
