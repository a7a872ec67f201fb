"""Verbs that call a running tuner over HTTP, or open the database itself."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from pathlib import Path

from tuner.cli.answers import JSON, LISTS, Verb, called, chosen, show, typed
from tuner.cli.options import Db, TokenFile, TunerUrl
from tuner.cli.place import open_api
from tuner.cli.reach import options_of
from tuner.cli.watching import Watch, looks
from tuner.verbs.table import Verbs
from tuner.wire import StudyView

Api = Verbs[StudyView]
"""The API that a verb calls."""


def _option(name: str, annotation: object, default: object) -> Parameter:
    """Return a keyword-only parameter for Typer."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


PLACE = (
    _option("tuner", TunerUrl, ""),
    _option("token_file", TokenFile, None),
    _option("db", Db, ""),
)
"""The options that name the tuner or the database, which every verb here has."""
WATCH = _option("watch", Watch, False)


def with_api(
    *more: Parameter, watch: bool = False, lists: bool = False, quiet: bool = False
) -> Callable[[Verb], Callable[..., None]]:
    """Add the API to a verb as its first argument, with `--tuner`, `--token-file`, `--db`, `--json`.

    `lists` adds `-o`. `watch` adds `--watch`, which repeats the verb after each change. With `quiet`
    the note that every device is stopped is not printed. `more` are further options, which a verb takes as
    `**given`.
    """

    def decorated(verb: Verb) -> Callable[..., None]:
        def asking(
            *, tuner: str, token_file: Path | None, db: str, as_json: bool, **given: object
        ) -> None:
            again = bool(given.pop("watch", False))
            form = chosen(str(given.pop("form", "table")), as_json)
            options = options_of(tuner, token_file, db)
            with open_api(tuner, token_file, db, quiet=quiet) as api:
                for _ in looks(api, again):
                    show(
                        called(verb, form == "json", given, api),
                        form,
                        options,
                        "-o wide" if lists else "--json",
                    )

        added = (*more, *([WATCH] if watch else []), *PLACE, *(LISTS if lists else [JSON]))
        return typed(asking, verb, added, skip=1)

    return decorated
