"""The log of a service: text lines on a terminal or in a file, JSON objects in systemd's journal."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TextIO

from tuner.moments import when

PLAIN = "%(asctime)s %(levelname)s %(message)s"


class PlainLines(logging.Formatter):
    """One line per message, with the time in UTC."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the time of a record."""
        return when(datetime.fromtimestamp(record.created, timezone.utc))


FIELD = re.compile(r"(?:(\w+)=)?%[-+ #0]*[\d.]*([a-zA-Z%])")
EVENT = re.compile(r"event=(\w+)")


class JsonLines(logging.Formatter):
    """One JSON object per line. Each named value of a message (`device=%s`) becomes a key."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as its line."""
        line: dict[str, object] = {**_named(record)}
        line["at"] = datetime.fromtimestamp(record.created, timezone.utc).isoformat()
        line["severity"] = record.levelname.lower()
        line["logger"] = record.name
        line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _named(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the event and the named values of a message."""
    template = str(record.msg)
    fields: dict[str, object] = {}
    if event := EVENT.match(template):
        fields["event"] = event[1]
    if isinstance(record.args, tuple):
        names = [match[1] for match in FIELD.finditer(template) if match[2] != "%"]
        pairs = zip(names, record.args, strict=False)
        fields.update((name, value) for name, value in pairs if name)
    return fields


def begin(
    *quiet: str, environment: Mapping[str, str] = os.environ, stream: TextIO | None = None
) -> None:
    """Begin to log to stderr; the loggers named `quiet` log only warnings.

    The lines are JSON if stderr is the file that systemd names in $JOURNAL_STREAM (systemd.exec(5)). So
    a child process with another stderr keeps plain lines.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    journal = is_journal(stream, environment.get("JOURNAL_STREAM", ""))
    handler.setFormatter(JsonLines() if journal else PlainLines(PLAIN))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in quiet:
        logging.getLogger(chatty).setLevel(logging.WARNING)


def is_journal(stream: TextIO, identity: str) -> bool:
    """Return whether a stream is the file that $JOURNAL_STREAM names: device and inode."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # the stream has no file descriptor
        return False
    return identity == f"{status.st_dev}:{status.st_ino}"
