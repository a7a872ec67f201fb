"""The agent's configuration: agent.toml, read strictly."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tuner.bounds import redacted
from tuner.core import DEVICE_FIELDS, FOREIGN_SHARE, ConfigError
from tuner.typed_toml import Filled, Table, load


@dataclass(frozen=True, slots=True)
class Attachment(Table):
    """A device to open (`simulated:a100`) and, if it is separate, the workload on it.

    With `observe` it is measured every `observe_s` seconds (default 60), and never set. A held device is
    parked `park_after_s` seconds after its engine's last request, if the next request loses at most
    `park_added_ms` milliseconds by that.

    Raises:
        ConfigError: `observe_s` is below 1 s, or is given for a device that is not observed; or one of the
            two fields of parking is missing, too small, or given for an observed device.
    """

    spec: Filled
    workload: str = ""
    observe: bool = False
    observe_s: float | None = None
    park_after_s: float | None = None
    park_added_ms: float | None = None

    def __post_init__(self) -> None:
        self._demand_parking()
        if self.observe_s is None:
            return
        if not self.observe:
            raise ConfigError(
                f"observe_s of {self.spec} has no effect without observe", hint="add observe = true"
            )
        if not 1.0 <= self.observe_s < math.inf:
            raise ConfigError(
                f"observe_s of {self.spec} cannot be {self.observe_s:g}", hint="give 1 s or more"
            )

    def _demand_parking(self) -> None:
        """Raise ConfigError unless the two fields of parking fit."""
        after_s, added_ms = self.park_after_s, self.park_added_ms
        if after_s is None and added_ms is None:
            return
        fits = 1.0 <= (after_s or 0.0) < math.inf and LEAST_ADDED_MS <= (added_ms or 0.0) < math.inf
        if not fits or self.observe or not self.workload:
            raise ConfigError(
                f"{self.spec} cannot be parked",
                hint="give a workload, park_after_s of 1 or more and park_added_ms of "
                f"{LEAST_ADDED_MS:g} or more, without observe",
            )

    @classmethod
    def parse(cls, text: str, workload: str = "") -> Attachment:
        """Read `SPEC` or `SPEC=WORKLOAD`; `workload` is the default for a text without one.

        Raises:
            ConfigError: a part is empty.
        """
        spec, equals, own = text.rpartition("=")
        parsed = cls(spec, own) if equals else cls(text, workload)
        if not parsed.spec or (equals and not parsed.workload):
            raise ConfigError(
                f"cannot read the device {text!r}", hint='write it like "cpu=reference"'
            )
        return parsed


LEAST_ADDED_MS = 250.0
"""A look at a parked engine every 200 ms, and the time of a change back."""
UNIX = "unix:"
LABEL = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
LABEL_VALUE = re.compile(r"[A-Za-z0-9._/-]{1,63}")
MOST_LABELS = 32


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """The address of the agent's metrics: a socket file, or a port of loopback."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> MetricsAddress:
        """Read `127.0.0.1:9464`, `[::1]:9464` or `unix:/run/…`.

        Raises:
            ConfigError: the text has another form, or its address is not on this host.
        """
        hint = 'write it like "127.0.0.1:9464", or "unix:/run/jouletune-agent/metrics.sock"'
        if text.startswith(UNIX):
            path = Path(text.removeprefix(UNIX))
            if not path.is_absolute():
                raise ConfigError(
                    f"metrics cannot be {text!r}: the path is not absolute", hint=hint
                )
            return cls(path=path)
        host, _, port = text.rpartition(":")
        try:
            local = ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
            number = int(port)
        except ValueError:
            raise ConfigError(f"metrics cannot be {text!r}", hint=hint) from None
        if not 0 <= number <= 65535:
            raise ConfigError(f"metrics cannot be {text!r}: there is no such port", hint=hint)
        if not local.is_loopback:
            raise ConfigError(
                f"metrics cannot be {text!r}: an agent opens no port beyond its host",
                hint="use 127.0.0.1 with a Prometheus or a proxy on "
                "this host; the tuner's /metrics has all devices",
            )
        return cls(host=str(local), port=number)


def filesystem_root() -> Path:
    """Return the root of the file system to search for devices: $JOULETUNE_ROOT, else `/`."""
    return Path(os.environ.get("JOULETUNE_ROOT", "/"))


def check_labels(labels: Mapping[str, str]) -> None:
    """Check that labels can be used in selectors.

    Raises:
        ConfigError: there are too many, or a name or a value has another form.
    """
    if len(labels) > MOST_LABELS:
        raise ConfigError(f"labels: {len(labels)} are too many", hint=f"give {MOST_LABELS} at most")
    for name, value in labels.items():
        if name in DEVICE_FIELDS or not LABEL.fullmatch(name):
            raise ConfigError(
                f"labels cannot have {name!r}",
                hint="use small letters, digits, '_', '.' and '-', and no name of a device's own "
                f"fields ({', '.join(sorted(DEVICE_FIELDS))})",
            )
        if not LABEL_VALUE.fullmatch(value):
            raise ConfigError(
                f"labels cannot have {name} = {value!r}",
                hint="use up to 63 letters, digits, '_', '.', '/' and '-'",
            )


class NoDevice(ConfigError):
    """The configuration names no device. Wait for one, or report it and exit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig(Table):
    """An agent's configuration, with defaults.

    - `state_dir` has the journal, the holds and the unsent reports; - `root` is the file system to search
    for devices; - `name` is the host's part of its devices' names; empty: its hostname; - `ca_file` has
    the authority of an https tuner (none: the system's); - `client_cert` and `client_key` identify the
    agent to it; - `metrics` is the address for Prometheus, `127.0.0.1:9464` or `unix:/path`; empty: none;
    - `foreign_share`: a window is repeated if other processes used more than this share of the machine; -
    `labels` are the operator's, by which a fleet file selects the host's devices.

    Raises:
        NoDevice: there is no device.
        ConfigError: the tuner's address is not a URL, the name does not fit a URL, `metrics` is not on
            this host, the share is not in (0, 1], or a label has another form.
    """

    tuner: str = "http://127.0.0.1:8790"
    name: str = ""
    token_file: Path = Path("token")
    state_dir: Path = Path("agent-state")
    devices: Annotated[tuple[Attachment, ...], Field(alias="device")] = ()
    seed: int = 0
    root: Path = field(default_factory=filesystem_root)
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    metrics: str = ""
    foreign_share: float = FOREIGN_SHARE
    labels: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.devices:
            raise NoDevice(
                "the agent has no device",
                hint="give one with --device, or a [[device]] table in agent.toml",
            )
        if not self.tuner.startswith(("http://", "https://")):
            raise ConfigError(
                f"tuner cannot be {redacted(self.tuner)!r}",
                hint='write it like "http://127.0.0.1:8790"',
            )
        if not re.fullmatch(r"[A-Za-z0-9._-]*", self.name):
            raise ConfigError(
                f"name cannot be {self.name!r}", hint="use letters, digits, '.', '_' and '-'"
            )
        if self.metrics:
            MetricsAddress.parse(self.metrics)
        if not 0.0 < self.foreign_share <= 1.0:
            raise ConfigError(
                f"foreign_share cannot be {self.foreign_share:g}",
                hint="it is a share of the machine, above 0 and at most 1",
            )
        check_labels(self.labels)


def load_agent_config(path: Path) -> AgentConfig:
    """Read agent.toml: the fields of AgentConfig, and one `[[device]]` table per device.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or a type is not valid. The message
            names the file, the line, the key, and the nearest valid key.
    """
    return load(path, AgentConfig)
