"""Names for shell completion, read from an SQLite file without SQLAlchemy, whose import takes too long."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

MOST = 500
QUERIES = {
    "studies": "SELECT id FROM studies ORDER BY created_at DESC LIMIT ?",
    "devices": "SELECT id FROM devices ORDER BY id LIMIT ?",
    "metrics": "SELECT description FROM devices ORDER BY id LIMIT ?",
}


def sqlite_names(url: str, kind: str) -> list[str]:
    """Return the `studies`, `devices` or `metrics` of an SQLite database.

    Empty for a database of another kind, and for a file that is locked, damaged or unreadable.
    """
    path = Path(url.removeprefix("sqlite:///"))
    if not url.startswith("sqlite:///"):
        return []
    with suppress(sqlite3.Error, OSError, ValueError, KeyError, TypeError):
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.05)
        ) as db:
            texts = [str(row[0]) for row in db.execute(QUERIES[kind], (MOST,))]
        if kind != "metrics":
            return texts
        described = (json.loads(text)["metrics"] for text in texts)
        return list(dict.fromkeys(metric["name"] for metrics in described for metric in metrics))
    return []
