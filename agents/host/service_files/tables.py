"""Tables in operators' files on this host: knobs, and the types of commands, paths and names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from agents.host.http.local_http import local_url
from tuner.core import REPEATED, Condition, ConfigError, Cost, Knob, Part, Role, Space, Value
from tuner.typed_toml import Filled, Table


def http_method(method: str) -> str:
    """Return an HTTP method. Raises ConfigError: it is not in capital letters."""
    if not re.fullmatch(r"[A-Z]+", method):
        raise ConfigError(f"method cannot be {method!r}", hint="write it like POST")
    return method


def url_path(path: str) -> str:
    """Return a path of the service, or a URL on this machine. Raises InvalidInput: it is neither."""
    rest = path
    if path.startswith("http:"):
        address, slash, rest = path.removeprefix("http://").partition("/")
        rest = slash + rest
        local_url(f"http://{address}", "write http://127.0.0.1:PORT/PATH")
    if not re.fullmatch(r"/(?:[!-.0-~][!-~]*)?", rest):
        raise ConfigError(f"path cannot be {path!r}", hint="write it like /config")
    return path


def argv(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a command, which runs without a shell. Raises ConfigError: they are not valid."""
    if not words or not all(word and "\0" not in word for word in words):
        raise ConfigError(
            f"a command is a list of words, not {list(words)!r}",
            hint='write it like command = ["systemctl", "restart", "vllm"]',
        )
    return words


def unit_name(name: str) -> str:
    """Return the name of a systemd unit that has processes.

    Raises:
        ConfigError: it is not such a name. Patterns are refused, because they could match other units.
    """
    if not re.fullmatch(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.\\@-]*\.(?:service|scope|slice)", name):
        raise ConfigError(f"{name!r} is not a systemd unit", hint="write it like nginx.service")
    return name


def absolute(path: Path) -> Path:
    """Return an absolute path. Raises PydanticCustomError: the path is relative."""
    if not path.is_absolute() or "\0" in str(path):
        raise PydanticCustomError("relative_path", "an absolute path")
    return path


def environment(table: Mapping[str, str]) -> Mapping[str, str]:
    """Return a program's variables besides the agent's. Raises ConfigError: one is not valid."""
    for name, text in table.items():
        if "\0" in text or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f"{name} = {text!r} is not valid", hint='write NAME = "text"')
    return table


def _value(value: object) -> object:
    """Return a knob's value. Raises ConfigError: it is not a bool, a number or a string."""
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(f"{value!r} cannot be a knob's value")
    return value


LongText = Annotated[str, Field(max_length=1 << 20)]
"""A text that may be a whole file, such as a request's body."""
Positive = Annotated[float, Field(gt=0.0)]
HttpMethod = Annotated[str, AfterValidator(http_method)]
UrlPath = Annotated[str, AfterValidator(url_path)]
Argv = Annotated[tuple[LongText, ...], REPEATED, AfterValidator(argv)]
UnitName = Annotated[str, AfterValidator(unit_name)]
AbsolutePath = Annotated[Path, AfterValidator(absolute)]
Environment = Annotated[dict[str, LongText], AfterValidator(environment)]
KnobValue = Annotated[Value, PlainValidator(_value)]


@dataclass(frozen=True, kw_only=True)
class KnobTable(Table):
    """A table `[[knob]]`. Raises InvalidInput: it describes no knob."""

    name: Filled
    values: tuple[KnobValue, ...]
    default: KnobValue
    role: Role = Role.UNKNOWN
    seconds: float = 0.0
    restart: bool = False
    condition: Annotated[str | None, Field(alias="if")] = None

    def __post_init__(self) -> None:
        _ = self.knob

    @cached_property
    def knob(self) -> Knob:
        """The knob."""
        cost = Cost(self.seconds, self.restart)
        condition = None if self.condition is None else Condition.parse(self.condition)
        workload, role = Part.WORKLOAD, self.role
        return Knob(self.name, self.values, self.default, workload, cost, role, condition=condition)


def refuse_misfits(knobs: Sequence[Knob]) -> None:
    """Raise InvalidInput if knobs contradict each other, or if one of them can never have an effect."""
    Space(tuple(knobs)).refuse_unreached(knob.name for knob in knobs)
