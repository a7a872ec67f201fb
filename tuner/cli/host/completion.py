"""`jouletune completion`: completion of commands, options and ids in a shell."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.models import OptionInfo

from tuner.cli import completing
from tuner.cli.completing import cache_folder, candidates, index_file, read_index
from tuner.cli.lazy import function
from tuner.cli.table import NOUNS, VERBS

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
    ids = completing.Ids(folder, os.environ, Path(".jouletune") / "run.json")
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
        from tuner import plugins

        return plugins.names(GROUP, POLICIES)
    if name in ("objective", "constraint", "constraints"):
        return "metrics"
    return "studies" if name == "study" else IDS.get(metavar or "", "")
