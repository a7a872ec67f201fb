"""The history of trials as rows, as a pandas frame or as a file; and the filters that select its trials."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, overload

from db.exports import as_parquet, as_table
from db.history import HistoryRow
from tuner.core import ConfigError, StoreError, TrialState, Verdict

if TYPE_CHECKING:
    import pandas


class Narrowing(TypedDict, total=False):
    """Filters of a history, by keyword. Times may also be text as on the command line (`2d`)."""

    device: str
    workload: str
    study: str
    since: datetime | str
    until: datetime | str
    verdict: Verdict | str
    state: TrialState | str


DATA = "pip install 'jouletune[client]'"


class History(Sequence[HistoryRow]):
    """The rows of a history, one for each trial."""

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
        """Return a pandas frame: one row a trial, with the columns of `jouletune history --format csv`.

        A knob whose values are numbers (`knob:gpu.clock_mhz`) is a column of numbers.

        Raises:
            ConfigError: pandas or pyarrow is not installed.
        """
        try:
            import pandas  # noqa: F401 - pyarrow's own refusal names no next step
            import pyarrow  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigError(f"{error.name} is not installed", hint=DATA) from None
        frame: pandas.DataFrame = as_table(self._rows).to_pandas()
        return frame

    def parquet(self, file: Path | str) -> None:
        """Write the rows as a Parquet file, with times in UTC.

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
