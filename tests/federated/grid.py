"""A Flower Grid within this process: a federation's messages and clients without its processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

Node = Callable[[Message], Message | None]
"""A client: returns its reply to a message, or None for no reply."""
CLIENT_FAILED = 2
"""Flower's error code for a client app that raised an exception."""


class LocalGrid(Grid):  # type: ignore[misc,unused-ignore]
    """A Grid that passes each message in turn to a function in this process and returns the replies.

    If a client raises an exception, its reply is an error, as with Flower's clients. Flower takes a
    message's run from its process; `identified` sets the run of this process.
    """

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self._nodes = dict(nodes)
        self.sent: list[Message] = []
        self._replies: dict[str, Message] = {}
        identified()

    def set_run(self, run: object) -> None:
        """Ignore the run: a process has only one."""

    @property
    def run(self) -> object:
        """Not available: raises NotImplementedError."""
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
        """Return the node ids of all clients."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; return their ids. The replies of the clients wait to be pulled."""
        ids = []
        for message in messages:
            ids.append(f"message {len(self.sent)}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            self.sent.append(message)
            reply = self._answered(message)
            if reply is not None:
                # Flower takes a reply's sender from its process, but here all clients share one.
                reply.metadata._src_node_id = message.metadata.dst_node_id
                self._replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to messages, each once."""
        return [self._replies.pop(one) for one in message_ids if one in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the clients' replies; send no more after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        for message in messages:
            if until is not None and time.monotonic() > until:
                break
            replies += self.pull_messages(self.push_messages([message]))
        return replies

    def _answered(self, message: Message) -> Message | None:
        """Return a client's reply to a message: an error if the client raised an exception."""
        try:
            return self._nodes[message.metadata.dst_node_id](message)
        except Exception as error:  # noqa: BLE001  a client's own code may raise anything
            return Message(Error(CLIENT_FAILED, str(error)), reply_to=message)


def identified() -> None:
    """Set the run of this process's messages for Flower 1.41 and later, which require it."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
