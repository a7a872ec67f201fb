"""Which agents ask for which device: one each, or the first of two is told."""

from __future__ import annotations

from collections import defaultdict

from tuner.core import Conflict

MOST_MET = 8
"""So many starts of a device's agents are remembered."""


class Served:
    """The starts of agents that have asked for each device, in order."""

    def __init__(self) -> None:
        self._starts: defaultdict[str, list[str]] = defaultdict(list)

    def meet(self, device: str, agent: str) -> None:
        """Remember who asks for a device. Who was followed by another and asks again never died.

        Left alone, two agents would take every trial from each other until it fails.

        Raises:
            Conflict: a second agent serves the device, and this one is the first of the two.
        """
        met = self._starts[device]
        if agent in met[:-1]:
            raise Conflict(
                f"{device} is served by two agents: {met[-1]} took it over from {agent}",
                hint="stop one of them, then start the other again, or give one of them another "
                "`name` in its agent.toml",
            )
        if agent not in met:
            met.append(agent)
            del met[:-MOST_MET]
