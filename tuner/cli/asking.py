"""Verbs that ask a running tuner over HTTP, or the database itself."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from pathlib import Path

from tuner.cli.answers import JSON, Verb, asked, show, typed
from tuner.cli.options import Db, TokenFile, TunerUrl
from tuner.cli.place import open_api
from tuner.cli.watching import Watch, looks
from tuner.verbs.table import Verbs
from tuner.wire import StudyView

Api = Verbs[StudyView]
"""What a verb asks."""


def _option(name: str, annotation: object, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


PLACE = (
    _option("tuner", TunerUrl, ""),
    _option("token_file", TokenFile, None),
    _option("db", Db, ""),
    JSON,
)
"""The options that every one of these verbs has."""
WATCH = _option("watch", Watch, False)


def asks(*, watch: bool = False, quiet: bool = False) -> Callable[[Verb], Callable[..., None]]:
    """Give a verb, as its first argument, what `--tuner`, `--token-file` and `--db` name, and `--json`.

    With `watch` also `--watch`: it is asked again when something changes. A `quiet` one does not say that
    every device is stopped.
    """

    def decorated(verb: Verb) -> Callable[..., None]:
        def asking(
            *, tuner: str, token_file: Path | None, db: str, as_json: bool, **given: object
        ) -> None:
            again = bool(given.pop("watch", False))
            with open_api(tuner, token_file, db, quiet=quiet) as api:
                for _ in looks(api, again):
                    show(asked(verb, as_json, given, api), as_json)

        return typed(asking, verb, (*([WATCH] if watch else []), *PLACE), skip=1)

    return decorated
