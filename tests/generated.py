"""Generate files from the table of verbs, the asyncio client and dataclasses: `python -m tests.generated`.

The blocking client is the asyncio client without `await`, as in httpcore2. `tuner.verbs.awaited` has the
verbs of the table as coroutines. The page of the HTTP API lists the table. The JSON Schema of a fleet file
follows its dataclasses.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from tuner.cli.run.observed import ObservedTarget
from tuner.service.declared.file import FleetFile
from tuner.verbs.row import Verb, verbs_of
from tuner.verbs.table import TokenVerbs, Verbs
from tuner.wire import StudyDraft

ROOT = Path(__file__).parents[1]
UNTYPED = ("protocol", "devices", "group", "who")
"""Fields that `tune` sets, and the group, which is a fleet file's."""
TO_BLOCKING = (
    (r"\A\"\"\".*?\"\"\"\n", '"""The blocking client. Generated from `tuner.client.asynchronous`."""\n'),
    (r"import asyncio\n", ""),
    (r"asyncio\.sleep", "time.sleep"),
    (r"\basync_client", "client"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"`async with`", "`with`"),
    (r"an `with`", "a `with`"),
    (r"\bawait ", ""),
    (r"\.aread\(", ".read("),
    (r"\.aiter_lines\(", ".iter_lines("),
    (r"\.aclose\(", ".close("),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"tuner\.verbs\.awaited", "tuner.verbs.table"),
    (r"AsyncStudy", "RemoteStudy"),
    (r"AsyncTokens\b", "RemoteTokens"),
    (r"\bAsync(Client|BaseTransport|Iterator|Verbs|TokenVerbs)\b", r"\1"),
)  # fmt: skip
TO_AWAITED = (
    (r"\A\"\"\".*?\"\"\"\n", '"""The verbs as coroutines. Generated from `tuner.verbs.table`."""\n'),
    (r"^    def (?!(?:access|follow)\b)", "    async def "),
    (r"\bIterator", "AsyncIterator"),
    (r"\b(Token)?Verbs\b", r"Async\1Verbs"),
)  # fmt: skip


def derived(source: Path, rules: tuple[tuple[str, str], ...]) -> str:
    """Return a source by rules, as ruff would format it."""
    text = source.read_text()
    for find, put in rules:
        text = re.sub(find, put, text, flags=re.DOTALL | re.MULTILINE)
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(source), "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        text = done.stdout
    return text


def page() -> str:
    """Return the page of the HTTP API: every verb, by the table."""
    head = (
        "# The HTTP API\n"
        "This page lists every route of the tuner. `tuner.verbs.table` defines the routes and "
        "[both clients](client.md). Each route needs a bearer token with at least its role. Types: "
        "[Wire](wire.md). `GET /v1/health` and `/v1/ready` need none. A running tuner describes everything "
        "at `/v1/openapi.json` and `/v1/docs`.\n"
    )
    rows = "".join(map(_row, (*verbs_of(Verbs), *verbs_of(TokenVerbs))))
    return f"{head}\n| Request | Parameters | Response | Role | Effect |\n|---|---|---|---|---|\n{rows}"


def _row(verb: Verb) -> str:
    taken = ", ".join(
        f"`{one}`"
        for name, parameter in verb.takes.items()
        if f"{{{name}}}" not in verb.path
        for one in _travelling(verb, name, parameter.annotation)
    )
    answer = f"`{_named(verb.answer)}`" if verb.answer is not None else "nothing"
    streamed = " (one by one, `text/event-stream`)" if verb.name == "follow" else ""
    return f"| `{verb.method} {verb.path}` | {taken} | {answer}{streamed} | {verb.role} | {verb.text} |\n"


def _travelling(verb: Verb, name: str, kind: Any) -> Iterable[str]:  # noqa: ANN401  a type
    """Return the names of a parameter in the page: the type of a message, else the names in the query."""
    if dataclasses.is_dataclass(kind) and not hasattr(kind, "model_fields"):
        return [field.name for field in dataclasses.fields(kind)]
    if name in ("change", "decision", "draft"):
        return [_named(kind)] if verb.bodied else verb.query_fields
    return [name]


def _named(kind: Any) -> str:  # noqa: ANN401  a type
    return kind.__name__ if isinstance(kind, type) else re.sub(r"[\w.]+\.", "", str(kind))


def schema() -> str:
    """Return the JSON Schema of fleet files, for editors."""
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    document |= TypeAdapter(FleetFile).json_schema()
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def request() -> str:
    """Return the arguments of `tune`: the fields of a draft, in the types that a caller may give."""
    head = (
        '"""The arguments of `tune`. Generated from `tuner.wire.StudyDraft`."""\n\n'
        "from __future__ import annotations\n\nfrom collections.abc import Mapping, Sequence\n"
        "from typing import TypedDict\n\nfrom tuner.core import Exploration, Terms\n\n\n"
        "class StudyRequest(TypedDict, total=False):\n"
        '    """The fields of a request for a study; an absent one has the default of a draft."""\n\n'
    )
    kinds = get_type_hints(StudyDraft)
    fields = [name for name in StudyDraft.model_fields if name not in UNTYPED]
    rows = "".join(f"    {name}: {_named(kinds[name])}\n" for name in fields)
    return head + rows.replace("tuple[", "Sequence[").replace(", ]", "]").replace(
        "dict[", "Mapping["
    )


def observed_schema() -> str:
    """Return the JSON schema of `jouletune observe --json`."""
    written = TypeAdapter(ObservedTarget).json_schema(mode="serialization")
    return json.dumps(written, indent=1) + "\n"


def generated() -> dict[Path, str]:
    """Return the text of every generated file."""
    return {
        ROOT / "tuner/client/blocking.py": derived(
            ROOT / "tuner/client/asynchronous.py", TO_BLOCKING
        ),
        ROOT / "tuner/verbs/awaited.py": derived(ROOT / "tuner/verbs/table.py", TO_AWAITED),
        ROOT / "tuner/client/request.py": request(),
        ROOT / "docs/api/http.md": page(),
        ROOT / "docs/api/fleet.schema.json": schema(),
        ROOT / "docs/api/observe.schema.json": observed_schema(),
    }


if __name__ == "__main__":
    for file, text in generated().items():
        file.write_text(text)
