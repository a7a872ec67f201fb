"""The file of a device's hold; a write that the disk refuses is repeated later."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from agents.holding.hold import Hold
from agents.holding.journal import Journal
from tuner import files
from tuner.core import StoreError, TuningError

log = logging.getLogger(__name__)

SUFFIX = ".hold.json"


class HoldFile:
    """The file of one device's hold; `behind` is set while a write is outstanding."""

    def __init__(self, device: str, folder: Path, journal: Journal) -> None:
        self._device, self._journal = device, journal
        self._path = folder / files.file_name(device, SUFFIX)
        self.behind = False

    def load(self) -> Hold | None:
        """Load the hold from the disk; ignore a damaged one, because its terms are unknown.

        Raises:
            StoreError: it cannot be read now; try again.
        """
        try:
            return Hold.model_validate_json(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(
                f"cannot read {self._path}: {error.strerror}", hint="make it readable"
            ) from error
        except (ValidationError, TuningError) as error:
            log.error("event=hold_damaged file=%s why=%r", self._path, str(error))
            return None

    def write(self, hold: Hold) -> None:
        """Write a new hold. Raises StoreError: the file may have the old or the new content."""
        try:
            files.write(self._path, hold.model_dump_json())
        except StoreError as error:
            self.behind = True  # memory is written again
            self._journal.refused = str(error)
            raise
        self.behind = False

    def keep(self, hold: Hold | None) -> None:
        """Write a hold, or remove it, as soon as the disk allows."""
        try:
            if hold is None:
                files.remove(self._path)
            else:
                files.write(self._path, hold.model_dump_json())
            self.behind = False
        except StoreError as error:
            if not self.behind:
                log.error("event=hold_not_written device=%s why=%r", self._device, str(error))
            self.behind = True
            # Without a journal entry the next start sees an ended hold; with one it must not find
            # the file.
            if hold is not None and hold.ended and self._journal.left(self._device):
                with suppress(StoreError):
                    files.remove(self._path)
