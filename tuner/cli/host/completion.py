"""`jouletune completion`: completion of commands, options and ids in a shell.

A shell runs `completion words` at every Tab, so this module imports little and `words` raises nothing. The
scripts write an index of all options into the cache folder; without it only commands are completed.
"""

from __future__ import annotations

import hashlib
import http.client
import inspect
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.models import OptionInfo

from tuner.cli.app import function
from tuner.cli.table import NOUNS, VERBS
from tuner.foreign_bodies import fetched
from tuner.installed import version

FRESH_S = 30.0
"""Ids that were fetched within this time are not fetched again."""
FETCH_S = 0.15
"""The longest wait for a tuner; after it the stored ids are used."""
MOST_BYTES = 64 * 1024 * 1024
PLACE = {
    "--tuner": "JOULETUNE_TUNER",
    "--db": "JOULETUNE_DB",
    "--token-file": "JOULETUNE_TOKEN_FILE",
}
"""Options that name the source of ids, with their environment variables."""
ROUTES = {"studies": "/v1/studies", "devices": "/v1/devices", "metrics": "/v1/devices"}

Values = Callable[[str, Mapping[str, str]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Line:
    """A command line before the cursor: command, options of the source, arguments, and an open option."""

    command: str
    place: Mapping[str, str]
    arguments: int
    option: str


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the index and the ids."""
    base = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    return Path(base) / "jouletune"


def index_file(folder: Path) -> Path:
    """Return the file of this release's index."""
    return folder / f"completion-{version()}.json"


def read_index(folder: Path) -> dict[str, Any]:
    """Return the commands with their options and arguments; only the commands if there is no index."""
    with suppress(OSError, ValueError):
        index = json.loads(index_file(folder).read_text("utf-8"))
        if isinstance(index, dict):
            return index
    bare: dict[str, Any] = {noun: {"below": []} for noun in NOUNS}
    bare[""] = {"below": []}
    for path, _, _ in VERBS:
        of, _, name = path.rpartition(" ")
        bare[of]["below"].append(name)
        bare[path] = {}
    bare[""]["below"] += NOUNS
    return bare


def candidates(words: Sequence[str], index: Mapping[str, Any], values: Values) -> list[str]:
    """Return the completions of the last of the words after `jouletune`."""
    *before, current = words or [""]
    line = parsed(before, index)
    about = index.get(line.command, {})
    if line.option:
        kind = about.get("options", {}).get(line.option)
    elif current.startswith("-"):
        return _fitting(about.get("options", {}), current)
    elif "below" in about:
        return [] if line.arguments else _fitting(about["below"], current)
    else:
        kinds = about.get("arguments", [])
        last = kinds[-1] if kinds and about.get("many") else None
        kind = kinds[line.arguments] if line.arguments < len(kinds) else last
    if isinstance(kind, list):
        return _fitting(kind, current)
    return _fitting(values(kind, line.place) if kind else (), current)


def parsed(words: Sequence[str], index: Mapping[str, Any]) -> Line:
    """Return the parts of a command line from its finished words."""
    command, arguments, option = "", 0, ""
    place: dict[str, str] = {}
    for word in words:
        about = index.get(command, {})
        if option:
            place |= {option: word} if option in PLACE else {}
            option = ""
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if equals:
                place |= {name: value} if name in PLACE else {}
            elif about.get("options", {}).get(name) is not None:
                option = name
        elif word in about.get("below", ()):
            command = f"{command} {word}".strip()
        else:
            arguments += 1
    return Line(command, place, arguments, option)


def _fitting(words: Sequence[str] | Mapping[str, object], current: str) -> list[str]:
    """Return the words with the prefix `current`."""
    return [word for word in words if word.startswith(current)]


class Ids:
    """Ids and metrics of the tuner or the database that a command line or the environment names."""

    def __init__(self, folder: Path, environ: Mapping[str, str], run_file: Path) -> None:
        self._folder, self._environ, self._run_file = folder, environ, run_file

    def __call__(self, kind: str, given: Mapping[str, str]) -> list[str]:
        """Return the `studies`, `devices` or `metrics`; none if no answer comes in time."""
        if kind not in ROUTES:
            return []
        tuner, db = given.get("--tuner", ""), given.get("--db", "")
        if not tuner and not db:
            tuner, db = (self._environ.get(PLACE[name], "") for name in ("--tuner", "--db"))
        if tuner:
            file = given.get("--token-file") or self._environ.get(PLACE["--token-file"], "")
            return self._cached(kind, tuner, file)
        # Imported only for a database, as it takes a third of the time.
        from db.names import sqlite_names

        return sqlite_names(db or self._last_run(), kind)

    def _last_run(self) -> str:
        """Return the database of the last run, empty if it cannot be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(self._run_file.read_text("utf-8"))["db"])
        return ""

    def _cached(self, kind: str, tuner: str, token_file: str) -> list[str]:
        """Return a tuner's ids: stored ones if fresh or if the tuner does not answer in time."""
        mark = hashlib.sha256(f"{tuner} {token_file}".encode()).hexdigest()[:16]
        file = self._folder / f"{kind}-{mark}.json"
        names: list[str] = []
        with suppress(OSError, ValueError):
            names = json.loads(file.read_text("utf-8"))
            if time.time() - file.stat().st_mtime < FRESH_S:
                return names
        # A socket's timeout limits each read, and no timeout limits the resolution of a name.
        fetching = threading.Thread(
            target=self._fetch, args=(kind, tuner, token_file, file, names), daemon=True
        )
        fetching.start()
        fetching.join(FETCH_S)
        return list(names)

    def _fetch(self, kind: str, tuner: str, token_file: str, file: Path, names: list[str]) -> None:
        """Replace `names` with the tuner's ids, and write them to a file."""
        with suppress(OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            names[:] = _fetched(kind, tuner, token_file, self._environ.get("JOULETUNE_CA_FILE"))
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_text(json.dumps(names), "utf-8")


def _fetched(kind: str, tuner: str, token_file: str, ca: str | None) -> list[str]:
    """Return a tuner's ids. Raises OSError, ValueError, KeyError, TypeError or HTTPException."""
    token = Path(token_file).read_text("utf-8").strip() if token_file else ""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if not tuner.startswith(("http://", "https://")):
        raise ValueError(f"{tuner} is no http URL")
    tls = ssl.create_default_context(cafile=ca) if tuner.startswith("https:") else None
    rows = fetched(f"{tuner.rstrip('/')}{ROUTES[kind]}", headers, MOST_BYTES, FETCH_S, tls)
    if kind == "studies":
        return [row["id"] for row in reversed(rows)]
    if kind == "devices":
        return [row["device"]["id"] for row in rows]
    names = (metric["name"] for row in rows for metric in row["device"]["metrics"])
    return list(dict.fromkeys(names))


IDS = {"ID": "devices", "STUDY": "studies", "STUDY[/NUMBER]": "studies"}
"""The kind of ids by metavar. The ID of `--study` is a study's, which the option's name decides."""
SHELLS = {
    "bash": """\
_jouletune() {
    local line=${COMP_LINE:0:COMP_POINT} current= prefix word
    local -a words
    read -ra words <<<"$line"
    case $line in *[[:space:]]) ;; *) current=${words[-1]}; unset 'words[-1]' ;; esac
    # Bash replaces only what follows the last of these signs.
    prefix=${current%"${current##*[@:=]}"}
    COMPREPLY=()
    while IFS= read -r word; do COMPREPLY+=("${word#"$prefix"}"); done \\
        < <(jouletune completion words -- "${words[@]:1}" "$current" 2>/dev/null)
}
complete -o default -F _jouletune jouletune
""",
    "zsh": """\
#compdef jouletune
_jouletune() {
    local -a found
    found=(${(f)"$(jouletune completion words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = _jouletune ]; then _jouletune "$@"; else compdef _jouletune jouletune; fi
""",
    "fish": """\
function __jouletune
    set -l words (commandline -opc) (commandline -ct)
    jouletune completion words -- $words[2..-1] 2>/dev/null
end
complete -c jouletune -f -a '(__jouletune)'
""",
}


def bash() -> None:
    """Print the completion script for bash: `jouletune completion bash >FILE`, then `source FILE`."""
    _print("bash")


def zsh() -> None:
    """Print the completion script for zsh: store it as `_jouletune` in a folder of `$fpath`."""
    _print("zsh")


def fish() -> None:
    """Print the completion script for fish: store it in `~/.config/fish/completions/jouletune.fish`."""
    _print("fish")


def words(
    typed: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="The words up to the cursor.")
    ] = None,
) -> None:
    """Print the completions of a command line; the scripts call this."""
    folder = cache_folder()
    ids = Ids(folder, os.environ, Path(".jouletune") / "run.json")
    for word in candidates(typed or [""], read_index(folder), ids):
        typer.echo(word)


def _print(shell: str) -> None:
    """Print a script, and store the index that it needs to complete options."""
    folder = cache_folder()
    index = dict(_indexed())
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        index_file(folder).write_text(json.dumps(index), "utf-8")
    except OSError as error:
        why = f"cannot write to {folder}: {error.strerror}"
        typer.echo(f"no options are completed: {why}; set XDG_CACHE_HOME", err=True)
    typer.echo(SHELLS[shell], nl=False)


def _indexed() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every command with the commands below it, its options and its arguments."""
    below: dict[str, list[str]] = {"": []}
    for path, _, _ in VERBS:
        noun, _, name = path.rpartition(" ")
        below.setdefault(noun, []).append(name)
    below[""] = [*below[""], *NOUNS]
    for noun, names in below.items():
        yield noun, {"below": names, "options": {"--help": None, "-h": None}}
    for path, module, _ in VERBS:
        yield path, _command(function(path.rpartition(" ")[2], module))


def _command(verb: Callable[..., object]) -> dict[str, Any]:
    """Return the options of a verb with their values (None for a flag), and its arguments."""
    options: dict[str, Any] = {"--help": None, "-h": None}
    arguments, many = list[Any](), False
    for name, parameter in inspect.signature(verb, eval_str=True).parameters.items():
        if parameter.annotation is typer.Context:
            continue
        kind, about = get_args(parameter.annotation)[:2]
        types = {kind, *get_args(kind)}
        value = None if bool in types else _values(name, about.metavar, types)
        if isinstance(about, OptionInfo):
            options |= dict.fromkeys(option_names(name, about), value)
        else:
            arguments.append(value)
            many = any(get_origin(one) is list for one in types)
    return {"options": options, "arguments": arguments, "many": many}


def option_names(name: str, about: OptionInfo) -> list[str]:
    """Return the declared names of an option, else the one that its parameter gives."""
    # In an annotation Typer takes the first name for the default.
    texts = [about.default, *(about.param_decls or ())]
    declared = [text for text in texts if isinstance(text, str) and text.startswith("-")]
    return declared or [f"--{name.rstrip('_').replace('_', '-')}"]


def _values(name: str, metavar: str | None, types: set[Any]) -> str | list[str]:
    """Return the values of an option: its choices, its kind of ids, or an empty text for any value."""
    for one in types:
        if get_origin(one) is Literal:
            return list(get_args(one))
        if isinstance(one, type) and issubclass(one, Enum):
            return [str(member.value) for member in one]
    if name == "policy":
        # Not loaded for `words`: it takes a third of the time.
        from policies import GROUP, POLICIES
        from tuner import installed

        return installed.names(GROUP, POLICIES)
    if name in ("objective", "constraint", "constraints"):
        return "metrics"
    return "studies" if name == "study" else IDS.get(metavar or "", "")
