"""A `systemctl` on PATH with scripted answers, which records its calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path

PROGRAM = """#!{python} -I
import json, sys
folder = {folder!r}
words = sys.argv[1:]
with open(folder + "/calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
with open(folder + "/state") as file:
    state = json.load(file)
if state["refusal"] and words[1] != "show":
    sys.exit(state["refusal"])
if words[1] == "show":
    for name in words[3].removeprefix("--property=").split(","):
        if name in state["told"]:
            print(name + "=" + state["told"][name])
if words[1] == "set-property":
    name, _, value = words[4].partition("=")
    state["told"].update(state["answers"].get(words[4], {{name: value}}))
    with open(folder + "/state", "w") as file:
        json.dump(state, file)
"""


class FakeSystemctl:
    """The program's answers, and its recorded calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state: dict[str, object] = {"told": {}, "answers": {}, "refusal": ""}
        folder.mkdir()
        program = folder / "systemctl"
        program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self._write()

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self._folder / "calls").read_text().splitlines()]

    def reports(self, **properties: str) -> None:
        """Set the reported properties."""
        self._state = json.loads((self._folder / "state").read_text())
        told = self._state["told"]
        assert isinstance(told, dict)
        told.update(properties)
        self._write()

    def answers(self, assignment: str, **properties: str) -> None:
        """Set the properties that are reported after an assignment."""
        self._state = json.loads((self._folder / "state").read_text())
        answers = self._state["answers"]
        assert isinstance(answers, dict)
        answers[assignment] = properties
        self._write()

    def refuses(self, words: str) -> None:
        """Refuse every call except `show`."""
        self._state = {**json.loads((self._folder / "state").read_text()), "refusal": words}
        self._write()

    def _write(self) -> None:
        (self._folder / "state").write_text(json.dumps(self._state))
