"""A Grid within this process: the messages and clients of a federation, without its processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

Node = Callable[[Message], Message | None]
"""A client: it answers a message, or not (None)."""
CLIENT_FAILED = 2
"""Flower's code of a client app that raised an error."""


class LocalGrid(Grid):  # type: ignore[misc,unused-ignore]
    """Sends each message to a function in this process, one after the other, and returns the replies.

    A client that raises answers with an error, as one of Flower's does. Flower's messages know the run
    they belong to by their process: `identified` says so for this one.
    """

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self._nodes = dict(nodes)
        self.sent: list[Message] = []
        identified()

    def set_run(self, run: object) -> None:
        """Take no note of a run: there is but one."""

    @property
    def run(self) -> object:
        """There is no run to tell of."""
        raise NotImplementedError("a grid in this process has no run")

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new message."""
        return Message(
            content=content,
            message_type=message_type,
            dst_node_id=dst_node_id,
            group_id=group_id,
            ttl=ttl,
        )

    def get_node_ids(self) -> Iterable[int]:
        """Return all clients."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: replies come at once by `send_and_receive`."""
        raise NotImplementedError("send and receive in one call")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse: replies come at once by `send_and_receive`."""
        raise NotImplementedError("send and receive in one call")

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Return what the clients answer, until the time is over."""
        until = None if timeout is None else time.monotonic() + timeout
        replies = []
        for message in messages:
            self.sent.append(message)
            if until is not None and time.monotonic() > until:
                break
            reply = self._answered(message)
            if reply is not None:
                # A reply's sender is its node: here all are one process.
                reply.metadata._src_node_id = message.metadata.dst_node_id
                replies.append(reply)
        return replies

    def _answered(self, message: Message) -> Message | None:
        try:
            return self._nodes[message.metadata.dst_node_id](message)
        except Exception as error:  # noqa: BLE001  a client's own code may raise anything
            return Message(Error(CLIENT_FAILED, str(error)), reply_to=message)


def identified() -> None:
    """Say which run this process's messages belong to, where Flower asks for that (from 1.41 on)."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
