"""What was tried, as rows, as a pandas frame or as a file; and the question it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, overload

from db.exports import as_parquet, as_table
from db.history import HistoryQuestion, HistoryRow
from tuner.compat import StrEnum
from tuner.core import ConfigError, InvalidInput, StoreError, TrialState, Verdict
from tuner.moments import moment

if TYPE_CHECKING:
    import pandas

Word = TypeVar("Word", bound=StrEnum)


class Narrowing(TypedDict, total=False):
    """What narrows a history, by keywords; times as the command line takes them (`2d`), too."""

    device: str
    workload: str
    study: str
    since: datetime | str
    until: datetime | str
    verdict: Verdict | str
    state: TrialState | str


DATA = "pip install 'jouletune[client]'"


class History(Sequence[HistoryRow]):
    """The rows of a history."""

    def __init__(self, rows: Sequence[HistoryRow]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, at: int) -> HistoryRow: ...
    @overload
    def __getitem__(self, at: slice) -> History: ...
    def __getitem__(self, at: int | slice) -> HistoryRow | History:
        return self._rows[at] if isinstance(at, int) else History(self._rows[at])

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<History of {len(self)} trials>"

    def frame(self) -> pandas.DataFrame:
        """Return a pandas frame: a row a trial, in the columns of `jouletune history --format csv`.

        A knob whose values are numbers (`knob:gpu.clock_mhz`) is a column of numbers.

        Raises:
            ConfigError: pandas or pyarrow is not installed.
        """
        try:
            import pandas  # noqa: F401 - pyarrow's own refusal names no next step
            import pyarrow  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigError(f"{error.name} is not installed", hint=DATA) from None
        made: pandas.DataFrame = as_table(self._rows).to_pandas()
        return made

    def parquet(self, file: Path | str) -> None:
        """Write the same as a Parquet file, times in UTC.

        Raises:
            ConfigError: pyarrow is not installed.
            StoreError: the file cannot be written.
        """
        try:
            as_parquet(self._rows, Path(file))
        except ModuleNotFoundError as error:
            raise ConfigError(f"{error.name} is not installed", hint=DATA) from None
        except OSError as error:
            raise StoreError(
                f"cannot write {file}: {error.strerror}", hint="choose another file"
            ) from None


def asked_of(question: HistoryQuestion | None, narrow: Mapping[str, object]) -> HistoryQuestion:
    """Return a question narrowed by keywords.

    Raises:
        InvalidInput: one is not known, or names no such word or time.
    """
    known = [f.name for f in fields(HistoryQuestion)]
    now, found = datetime.now(timezone.utc), dict[str, object]()
    for name, value in narrow.items():
        if name not in known:
            raise InvalidInput(
                f"a history has no {name!r}", hint=f"narrow it by {', '.join(known)}"
            )
        found[name] = parsed(name, value, now) if isinstance(value, str) else value
    return replace(question or HistoryQuestion(), **found)  # type: ignore[arg-type]


def parsed(name: str, text: str, now: datetime, called: str = "") -> object:
    """Return what a text says that narrows a history; `called` is its name in a refusal.

    Raises:
        InvalidInput: it names no such word or time.
    """
    called = called or name
    if name in ("since", "until"):
        return moment(called, text, now)
    if name == "verdict":
        return _word(called, Verdict, text)
    if name == "state":
        return _word(called, TrialState, text)
    return text


def _word(name: str, words: type[Word], text: str) -> Word:
    try:
        return words(text)
    except ValueError:
        listed = ", ".join(words)
        raise InvalidInput(f"{name} cannot be {text!r}", hint=f"choose {listed}") from None
