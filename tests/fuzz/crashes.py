"""The definition of a crash: an error of another kind than ours, raised, logged, or ending a thread."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import TuningError

HERE = Path(__file__).parents[2]


@dataclass
class Crashes:
    """The crashes so far, each with its case, and the number of cases."""

    cases: int = 0
    found: list[dict[str, str]] = field(default_factory=list)

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Count a case."""
        self.cases += 1
        before, threading.excepthook = threading.excepthook, lambda args: self._add(name, args[1])
        heard = Errors(lambda error: self._add(name, error))
        logging.getLogger().addHandler(heard)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(heard)
            threading.excepthook = before

    @contextmanager
    def contained(self, name: str) -> Iterator[None]:
        """Accept our errors as answers; record any other as a crash."""
        try:
            yield
        except TuningError:
            pass
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            self._add(name, error)

    def _add(self, name: str, error: BaseException | None) -> None:
        if error is None or isinstance(error, TuningError):
            return
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(str(HERE))] or frames
        where = f"{Path(ours[-1].filename).relative_to(HERE)}:{ours[-1].lineno}" if ours else ""
        self.found.append({"case": name, "where": where, "error": repr(error)[:200]})


class Errors(logging.Handler):
    """Forwards log records with an exception."""

    def __init__(self, take: object) -> None:
        super().__init__(logging.ERROR)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and callable(self._take):
            self._take(record.exc_info[1])
