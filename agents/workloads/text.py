"""The reference text engine as a workload: trained where need be, started here, ended with the agent.

`text` starts it; `text:http://127.0.0.1:PORT` attaches to one that runs. Our load generator sends streamed
completions of held-out source text; items are tokens.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import httpx
from pydantic import TypeAdapter

from agents.host.local_http import LocalHttp, local_url
from agents.host.server_process import ServerProcess
from agents.speculation.attach import PromptLoad, attached
from agents.speculation.client import SpeculationClient
from agents.target.reviving import revived
from agents.target.side import Side
from tuner.core import Clock, DeviceLost, InvalidInput, TuningError

SERVER = "agents.workloads.reference.text.serve"
TRAINING = "agents.workloads.reference.text.training"
NEEDS = ("httptools", "starlette", "torch", "uvicorn")
WHAT, HINT = "the text engine", f"start it: python -m {SERVER}"
CALLERS, TOKENS, PROMPTS = 4, 64, 256


def open_text(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Open `text`, started here and ended by `close`, or `text:http://127.0.0.1:PORT`, which runs.

    The first start trains its models, which takes minutes and is shown.

    Raises:
        InvalidInput: a package that it needs is not installed, or the address is none.
        DeviceLost, ActuationError: it does not start or answer, or is no text engine.
    """
    address = spec.removeprefix("text").removeprefix(":")
    if address:
        parts = local_url(address, f"write text or text:http://127.0.0.1:PORT; {HINT}")
        return _side(f"http://{parts.netloc}", seed, clock)
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInput(
            f"the {spec} workload needs {', '.join(missing)}", hint="pip install -e '.[reference]'"
        )
    state_dir.mkdir(parents=True, exist_ok=True)
    if subprocess.run(
        [sys.executable, "-m", TRAINING], stdout=subprocess.DEVNULL, check=False
    ).returncode:
        raise DeviceLost("the text engine's models could not be trained", hint="its error is above")
    child = ServerProcess(spec, SERVER, [], state_dir / "text.log")
    return revived(child, lambda url: _side(url, seed, clock))


def _side(url: str, seed: int, clock: Clock) -> Side:
    client = SpeculationClient(url, WHAT, HINT)
    try:
        load = PromptLoad(CALLERS, prompts(url, seed), TOKENS)
        return attached(client, "text", load, clock, seed, one_draft=False)
    except TuningError:
        client.close()
        raise


def prompts(url: str, seed: int) -> tuple[str, ...]:
    """Return held-out prompts that an engine has. Raises DeviceLost, ActuationError."""
    http = LocalHttp(url, WHAT, HINT)
    try:
        answer: httpx.Response = http.call("GET", f"/prompts?count={PROMPTS}&seed={seed}")
        return http.parsed(TypeAdapter(tuple[str, ...]), answer, "the text engine's", HINT)
    finally:
        http.close()
