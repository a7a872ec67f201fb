"""Studies by the first characters of their ids, as people type them."""

from __future__ import annotations

import db
from tuner.core import InvalidInput, NotFound, Study

MOST_LISTED = 8


def begun_with(studies: db.Studies, name: str) -> Study:
    """Return the study with this id, or else the only study whose id begins with it.

    Raises:
        NotFound: no id begins with it.
        InvalidInput: several ids begin with it.
        Unreadable: the study cannot be read.
    """
    try:
        return studies.get(name)
    except NotFound:
        matches = [study for study in studies.ids() if name and study.startswith(name)]
        if not matches:
            raise
    if len(matches) == 1:
        return studies.get(matches[0])
    shown = studies.stored(among=matches[:MOST_LISTED])
    listed = ", ".join(f"{study.id} ({study.phase})" for study in shown)
    more = f" and {len(matches) - MOST_LISTED} more" if len(matches) > MOST_LISTED else ""
    raise InvalidInput(
        f"{len(matches)} studies begin with {name!r}: {listed}{more}",
        hint="give more characters of the id",
    )
