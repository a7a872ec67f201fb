"""The flags of a systemd service that root sets: words of its command, by a drop-in until the next boot.

Sources: systemd.service(5), command lines; systemd.unit(5), drop-ins and continued lines; systemctl(1).
The drop-in clears ExecStart= and sets the unit's own command with granted words: an agent selects a word
and never sends its text. Ours: a command with quotes, variables, specifiers or escapes is refused, because
they may hide a flag. While a restart with the drop-in is due, a file lies beside it.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.actuator.driver import COMMIT_S, Value
from agents.actuator.programs import output
from tuner.errors import ActuationError

ACTUATOR, OURS = "jouletune-actuator.service", "jouletune-"
PROGRAM, FOLDER = "usr/bin/systemctl", "run/systemd/system"
DROP_IN, OWED = "zzz-jouletune.conf", "jouletune.owed"
"""The drop-in, the last by its name and so in force; and the file that exists while a restart is due."""
ANSWER_S, RELOAD_S = 4.0, 10.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,240}\.service")
FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]{0,60}")
WORD = re.compile(r"(?!--?[A-Za-z])[A-Za-z0-9_.,:/+-]{1,200}")
NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{0,3}[1-9])?")
SURE = re.compile(r"(?![-:+!|]*@)[!#&(-:<-\[\]-~ \t]+")
"""Printable ASCII except quotes, backslash, `$`, `%` and `;`; no prefix `@`, which sets another argv[0]."""
HEAD = "# Set by jouletune until it restores the unit's own command: "
KEPT = ("success", "signal", "oom-kill", "watchdog")
"""Results of the actuator's unit after which systemd restarts it."""
STATES = ("Id", "LoadState", "ActiveState", "FragmentPath", "DropInPaths", "ExecStart")


class UnitFlags:
    """One service's flags; a KnobDriver. `commit` puts written words in force.

    A flag that the unit's own command lacks is offered if actuator.toml has its original value. Every
    method raises ActuationError.
    """

    epoch, restarts = "unit", True
    knobs: Sequence[str] = ()

    def __init__(self, name: str, root: Path) -> None:
        """Prepare a service; until `offer` no flag can be set, and each write restores."""
        self.board, self.uuid = name, f"unit:{name}"
        self._root, folder = root, root / FOLDER / f"{name}.d"
        self._drop_in, self._owed = folder / DROP_IN, folder / OWED
        self._offered: dict[str, tuple[Value, ...]] = {}
        self.defaults, self.without = dict[str, Value](), dict[str, str]()

    def offer(self, terms: Any) -> None:  # noqa: ANN401 - its Granted
        """Offer the granted flags and words, as numbers if all are; `without` gets reasons for others."""
        self.knobs = (*terms.grant,)
        for flag, words in terms.grant.items():
            try:
                own, given = _word(self._own()[0], flag), terms.original.get(flag)
                default = str(given) if own is None else own
                why = _refused(flag, words, own, given)
                if why or flag in terms.failsafe or flag in terms.floor:
                    raise ActuationError(why or "a flag has no fail-safe and no floor; remove it")
                kind = _number if all(map(NUMBER.fullmatch, (*words, default))) else str
                self._offered[flag] = (*sorted({kind(word) for word in words}),)
                self.defaults[flag] = kind(default)
            except ActuationError as error:
                self.without[flag] = str(error)

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the settable flags and their granted words."""
        return self._offered

    def read(self) -> Mapping[str, Value | None]:
        """Return each flag's word; None while a restart is due, when the old or the new may be in force."""
        if self._owed.exists():
            return dict.fromkeys(self._offered)
        own = self._own()[0]
        if [own] != (self._noted() or [own]):
            hint = "the trial or hold ends; the service restarts with the unit's own command"
            raise ActuationError(f"the command of {self.board} was changed", hint=hint)
        return {**self.defaults, **self._changed(own)}

    def write(self, knob: str, value: Value | None) -> None:
        """Set a flag to a granted word; any other value restores the unit's own word."""
        own, states = self._own()
        noted, granted = self._noted() or [own], self._offered.get(knob, ())
        originals = {str(self.defaults.get(knob)), *(_word(command, knob) for command in noted)}
        words = self._changed(noted[0])
        words.pop(knob, None)
        if value in granted and str(word := granted[granted.index(value)]) not in originals:
            if (state := states["ActiveState"]) != "active":
                raise ActuationError(f"{self.board} is {state}", hint="start it first")
            words[knob] = word
        command = " ".join(_built(own, words))
        text = f"{HEAD}{' '.join(own)}\n[Service]\nExecStart=\nExecStart={command}\n"
        if (text if words else "") == _content(self._drop_in):
            return
        try:
            if not self._owed.exists():
                _write(self._owed, f"{HEAD}{' '.join(noted[0])}\n{states['ActiveState']}")
            if words:
                _write(self._drop_in, text)
            else:
                self._drop_in.unlink()
        except OSError as error:
            with suppress(OSError):  # a rename needs no space: restore the unit's own command
                if not self._owed.exists():
                    self._drop_in.rename(self._owed)
                self._drop_in.unlink(missing_ok=True)
            hint = "free space in /run, or place deploy/actuator-unit.conf beside our unit"
            why = f"cannot write {error.filename}: {error.strerror}"
            raise ActuationError(why, hint=hint) from None

    def commit(self) -> None:
        """Restart the service if that is due; a service that an operator stopped stays stopped."""
        if not self._owed.exists():
            return
        self._ask("daemon-reload", seconds=RELOAD_S)
        if not _content(self._owed).endswith("\ninactive"):
            self._ask("reset-failed", self.board)  # otherwise our restarts count towards its limit
            self._ask("restart", self.board, seconds=COMMIT_S - 2 * RELOAD_S)
        own, states = self._own()
        command = " ".join(_built(own, self._changed(own))).lstrip("-:+!|")
        if f"argv[]={command} ;" not in states["ExecStart"]:
            raise ActuationError(f"systemd has not loaded {self._drop_in}: {states['ExecStart']}")
        if states["ActiveState"] not in ("active", "inactive"):
            raise ActuationError(f"{self.board} is {states['ActiveState']} after its restart")
        self._owed.unlink()
        with suppress(OSError):  # the folder has other files
            self._owed.parent.rmdir()

    def keeps(self) -> bool:
        """Return whether a hold stays in force when this process ends, because systemd restarts it."""
        serving = "success" if "NOTIFY_SOCKET" in os.environ else ""
        if os.environ.get("SERVICE_RESULT", serving) not in KEPT:
            return False
        return "stop" not in self._ask("list-jobs", "--plain", "--no-legend", ACTUATOR).split()

    def _changed(self, own: Sequence[str]) -> dict[str, Value]:
        """Return the words by which the drop-in replaces the unit's own ones, by flag."""
        command = _content(self._drop_in).rpartition("ExecStart=")[2].split()
        granted = [(flag, value) for flag, values in self._offered.items() for value in values]
        return {k: v for k, v in granted if str(v) == _word(command, k) != _word(own, k)}

    def _noted(self) -> list[list[str]]:
        """Return the unit's command as it was when each of our files was written, the drop-in's first."""
        texts = map(_content, (self._drop_in, self._owed))
        return [t.split("\n")[0].removeprefix(HEAD).split() for t in texts if t]

    def _own(self) -> tuple[list[str], Mapping[str, str]]:
        """Return the words of the unit's own command, and the unit's properties in systemd."""
        shown = self._ask("show", self.board, f"--property={','.join(STATES)}").splitlines()
        states = dict.fromkeys(STATES, "") | dict(line.partition("=")[::2] for line in shown)
        if (states["Id"], states["LoadState"]) != (self.board, "loaded"):
            why = f"systemd has it as {states['Id']}, {states['LoadState']}"
            raise ActuationError(f"{self.board} cannot be set: {why}")
        commands: list[str] = []
        for path in (states["FragmentPath"], *states["DropInPaths"].split()):
            if Path(path).name != DROP_IN:
                for value in _values(_content(self._root / path.lstrip("/"))):
                    commands = [*commands, value] if value else []
        words = " ; ".join(commands).split()
        if len(commands) != 1 or not SURE.fullmatch(commands[0]) or "--" in words:
            why = f"ExecStart of {self.board} is not sure: {' '.join(words) or 'there is none'}"
            hint = "write one command without quotes, backslashes, $, %, ; and --"
            raise ActuationError(why, hint=hint)
        return words, states

    def _ask(self, *words: str, seconds: float = ANSWER_S) -> str:
        """Run systemctl and return its output."""
        command = (self._root / PROGRAM, "--no-ask-password", "--no-pager", *words)
        return output(f"systemctl {words[0]} {self.board}", *command, seconds=seconds)


def _refused(flag: str, words: Sequence[Any], own: str | None, given: Value | None) -> str:
    """Return the reason why a flag cannot be granted with these words; empty if it can."""
    if not FLAG.fullmatch(flag):
        return "it is no flag; write --NAME"
    if wrong := [w for w in words if not (isinstance(w, str) and WORD.fullmatch(w))]:
        return f"{wrong[0]!r} is no word; list words of letters, digits and _.,:/+-"
    if own is None and given is None:
        return "the unit's command lacks it; add it there, or its value to [device.original]"
    if own not in (None, str(own if given is None else given)):
        return f"it is {own!r} in the unit; correct [device.original]"
    return ""


def _word(command: Sequence[str], flag: str) -> str | None:
    """Return a flag's word in a command, None without the flag. Raises ActuationError: it is ambiguous."""
    at = [n for n, word in enumerate(command) if word.partition("=")[0] == flag]
    if not at:
        return None
    joined, after = command[at[0]].partition("=")[1:], command[at[0] + 1 : at[0] + 2]
    word = joined[1] if joined[0] else "".join(after)
    if len(at) > 1 or not WORD.fullmatch(word):
        raise ActuationError(f"the command has {flag} twice, or without a plain word")
    return word


def _built(own: Sequence[str], words: Mapping[str, Value]) -> list[str]:
    """Return a command with these flags' words in place of its own; missing flags are added at its end."""
    command = [*own]
    for flag, word in words.items():
        at = [n for n, own_word in enumerate(own) if own_word.partition("=")[0] == flag]
        if at and "=" in own[at[0]]:
            command[at[0]] = f"{flag}={word}"
        elif at:
            command[at[0] + 1] = str(word)
        else:
            command += [flag, str(word)]
    return command


def _values(text: str) -> Iterator[str]:
    """Yield the values of ExecStart= in a unit file, in order; an empty one clears those before it."""
    whole = section = ""
    for line in [*text.split("\n"), ""]:
        if line.lstrip()[:1] in ("#", ";"):
            continue
        whole += line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = f"{whole[:-1]} "
            continue
        key, _, value = whole.strip().partition("=")
        section, whole = key if key.startswith("[") else section, ""
        if section == "[Service]" and key.strip() == "ExecStart":
            yield value.strip()


def _number(word: str) -> Value:
    """Return a word as an int, or as a float if it has a decimal point."""
    return float(word) if "." in word else int(word)


def _content(file: Path) -> str:
    """Return a file's text, empty if there is no file. Raises ActuationError."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise ActuationError(f"cannot read {file}: {error}") from error


def _write(file: Path, text: str) -> None:
    """Replace a file atomically, readable for all, as systemd shows it to every user."""
    file.parent.mkdir(exist_ok=True)
    file.parent.chmod(0o755)
    new = file.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o644)
    new.replace(file)


def discover(name: str = "", root: Path = Path("/")) -> list[UnitFlags]:
    """Return a service's flags; an empty list without a name. Raises ActuationError: it cannot be set."""
    if name and (not NAME.fullmatch(name) or name.startswith(OURS)):
        hint = 'write drivers = ["unit:NAME.service"], not a unit of jouletune'
        raise ActuationError(f"{name!r} is no service to set", hint=hint)
    return [UnitFlags(name, root)] if name else []
