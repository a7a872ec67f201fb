"""A fake systemd with one service, in files that outlive every process; it fails like the real one.

`python -m tests.fake_systemd ROOT WORDS…` is its systemctl. Its file lists faults: `bad` (a word with
which the service does not start), `dies` (one with which its process ends soon, and is restarted until
it has failed), `hang` (one with which a start never ends), `lost` (a daemon-reload that loads nothing),
`masked`, `gone` (the unit's file was removed). At most five starts are possible without reset-failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.devices.unit.knobs import UnitFlags
from tuner import files
from tuner.errors import ActuationError

NAME = "llm.service"
COMMAND = "/usr/bin/llama-server --model /srv/m.gguf --threads 2 --batch=64"
UNIT = f"[Unit]\nDescription=x\n[Service]\nExecStart={COMMAND}\n"
MOST_STARTS = 5


@dataclass
class FakeSystemd:
    """The service's files below `root`, its state, and systemctl."""

    root: Path

    def __post_init__(self) -> None:
        self.file = self.root / "systemd.json"
        self.fragment = self.root / "etc/systemd/system" / NAME
        self.folders = [self.root / f"{at}/systemd/system/{NAME}.d" for at in ("etc", "run")]

    def boot(self, unit: str = UNIT) -> None:
        """Create the unit's file, and start its service."""
        self.fragment.parent.mkdir(parents=True, exist_ok=True)
        (self.root / "run/systemd/system").mkdir(parents=True, exist_ok=True)
        self.fragment.write_text(unit)
        self.save({"active": "active", "starts": 0, "all": 1, "jobs": ""})
        self.call("daemon-reload")
        self.save({**self.state, "running": self.state["argv"]})

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.file.read_text())
        return state

    def save(self, state: dict[str, Any]) -> None:
        files.write(self.file, json.dumps(state))

    def goes_wrong(self, **how: Any) -> None:  # noqa: ANN401 - JSON
        self.save({**self.state, **how})

    @property
    def left(self) -> list[str]:
        """Our files below /run."""
        return sorted(path.name for path in self.folders[1].glob("*"))

    def call(self, *words: str) -> str:
        """Act like systemctl. Raises ActuationError with its output; TimeoutError: it hangs."""
        verb, state = (
            next(w for w in words if w not in ("--no-ask-password", "--no-pager")),
            self.state,
        )
        if verb == "list-jobs":
            return str(state["jobs"])
        if verb == "daemon-reload" and not state.get("lost"):
            drop_ins = sorted(
                (path for folder in self.folders for path in folder.glob("*.conf")),
                key=lambda path: path.name,
            )
            argv = ""
            for path in (self.fragment, *drop_ins):
                for line in path.read_text().replace("\\\n", " ").splitlines():
                    argv = (
                        line.removeprefix("ExecStart=") if line.startswith("ExecStart=") else argv
                    )
            shown = " ".join(f"/{path.relative_to(self.root)}" for path in drop_ins)
            self.save({**state, "argv": " ".join(argv.split()).lstrip("-:+!|"), "drop_ins": shown})
        if verb == "reset-failed":
            active = "inactive" if state["active"] == "failed" else state["active"]
            self.save({**state, "starts": 0, "active": active})
        if verb == "restart":
            self._restart(state)
        return self._shown(state) if verb == "show" else ""

    def _restart(self, state: dict[str, Any]) -> None:
        argv, starts = state["argv"], state["starts"] + 1
        now = {
            **state,
            "starts": starts,
            "all": state["all"] + 1,
            "running": "",
            "active": "failed",
        }
        self.save(now)  # the old process has ended in any case
        if state.get("masked") or state.get("gone") or starts > MOST_STARTS:
            raise ActuationError(
                f"systemctl restart {NAME}: it is masked, gone, or started too often"
            )
        if state.get("bad") in argv.split():
            raise ActuationError(f"systemctl restart {NAME}: Job for {NAME} failed")
        if state.get("hang") in argv.split():
            self.save({**now, "active": "activating"})
            raise TimeoutError
        dies = state.get("dies") in argv.split()
        self.save({**now, "running": argv, "active": "active", "dying": dies, "looks": 0})

    def _shown(self, state: dict[str, Any]) -> str:
        if state.get("dying"):  # the first query sees it active, later ones its restarts
            looks = state["looks"] + 1
            active = "active" if looks == 1 else "activating" if looks <= MOST_STARTS else "failed"
            state = {**state, "looks": looks, "active": active}
            self.save(state)
        load = "not-found" if state.get("gone") else "masked" if state.get("masked") else "loaded"
        told = (
            f"path={state['argv'].split()[0]} ; argv[]={state['argv']} ; ignore_errors=no ; pid=7"
        )
        lines = [f"Id={NAME}", f"LoadState={load}", f"ActiveState={state['active']}"]
        lines += [f"NRestarts={max(0, state.get('looks', 0) - 1)}"]
        lines += [f"FragmentPath=/{self.fragment.relative_to(self.root)}"]
        return "\n".join(
            [*lines, f"DropInPaths={state['drop_ins']}", f"ExecStart={{ {told} }}", ""]
        )

    def driver(self) -> DirectFlags:
        return DirectFlags(self)

    def program(self) -> None:
        """Install systemctl as a separate program."""
        path = self.root / "usr/bin/systemctl"
        path.parent.mkdir(parents=True)
        here = Path(__file__).parents[1]
        path.write_text(
            f'#!/bin/sh\ncd {here} && exec {sys.executable} -m tests.fake_systemd {self.root} "$@"\n'
        )
        path.chmod(0o755)


class DirectFlags(UnitFlags):
    """The driver, with systemctl called in this process."""

    def __init__(self, systemd: FakeSystemd) -> None:
        super().__init__(NAME, systemd.root)
        self.systemd = systemd

    def _ask(self, *words: str, seconds: float = 4.0) -> str:
        try:
            return self.systemd.call(*words)
        except TimeoutError:
            late = subprocess.TimeoutExpired(words, seconds)
            raise ActuationError(f"systemctl {words[0]} {NAME}: {late}") from None


def main(root: str, *words: str) -> int:
    try:
        sys.stdout.write(FakeSystemd(Path(root)).call(*words))
    except ActuationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except TimeoutError:
        time.sleep(3600.0)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
