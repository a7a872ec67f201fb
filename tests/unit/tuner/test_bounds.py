"""Every text, list and mapping in a message has a bound, in every field."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from agents.config import AgentConfig
from tests.builders import completed
from tests.frozen.messages import MESSAGES
from tests.stores import memory_store
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.web.site import Site
from tuner import wire
from tuner.bounds import MOST_ITEMS, MOST_SENTENCE, MOST_SETTINGS, MOST_TEXT, bounded, visible
from tuner.config import TunerConfig
from tuner.core import CapKnob, Exploration, HourRow
from tuner.service.declared.file import FleetFile
from tuner.service.http import bodies, routes
from tuner.wire import (
    ORDER,
    AdmitDraft,
    BudgetDraft,
    BudgetOrder,
    BudgetReport,
    CapOrder,
    Change,
    ConstraintChange,
    Decision,
    ExplorationChange,
    FleetDraft,
    GridDraft,
    Message,
    OperatorView,
    Poll,
    Registration,
    StudyDraft,
    TokenDraft,
)

OPERATORS = {
    "draft": StudyDraft(
        devices=("a",), constraints=("latency_p99_ms <= 1",), choices={"batch": (1, "x")}
    ),
    "change": Change(why="so"),
    "constraints": ConstraintChange(constraints=("latency_p99_ms <= 1",)),
    "decision": Decision(revision=1),
    "exploration": ExplorationChange(exploration=Exploration(frozen="so")),
    "fleet": FleetDraft(lines=("[[group]]", "name = 1")),
    "token": TokenDraft.model_validate({"name": "ann", "role": "viewer"}),
}
CAP = CapOrder(in_s=0.0, cap_w=200.0, at_most={"gpu.power_limit_w": 200.0})
BUDGETS: dict[str, Message] = {
    "cap": CAP,
    "order": BudgetOrder(kind="caps", group="rack", revision=1, steps=(CAP,)),
    "report": BudgetReport(
        agent="a", knobs=(CapKnob("k", 1.0),), at_most={"k": 1.0}, unable="a reason"
    ),
    "budget": BudgetDraft(
        select={"board": ("A100*",)},
        rows=(HourRow(6000.0, "8-20"),),
        priorities={"gpu*": 1},
        why="so",
    ),
    "admit": AdmitDraft(devices=("gpu9@host",)),
    "event": GridDraft(groups=("rack",), watts=1.0, expires_at=datetime(2026, 1, 1, tzinfo=UTC)),
}
INBOUND: dict[str, Message] = {**MESSAGES, **OPERATORS, **BUDGETS}
Path = tuple[str | int, ...]


def places(value: Any, at: Path = ()) -> Iterator[Path]:  # noqa: ANN401
    """Yield the places of texts, lists and mappings in a message."""
    if isinstance(value, str | list | dict):
        yield at
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*at, index))
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*at, key))


def at(value: Any, path: Path) -> Any:  # noqa: ANN401
    for step in path:
        value = value[step]
    return value


def swollen(value: Any, path: Path) -> Any:  # noqa: ANN401
    """Return a message whose text, list or mapping at a place is far too large."""
    made = copy.deepcopy(value)
    holder, original = at(made, path[:-1]), at(made, path)
    if isinstance(original, str):
        large: Any = "x" * 100_000
    elif isinstance(original, list):
        large = (original or ["x"])[:1] * (MOST_SETTINGS + 1)
    else:
        large = {**original, **{f"k{n}": 1 for n in range(30_000)}}
    holder[path[-1]] = large
    return made


def test_every_inbound_message_of_the_wire_is_looked_at() -> None:
    kinds = {type(message) for message in INBOUND.values()}
    all_kinds = {
        kind
        for kind in vars(wire).values()
        if isinstance(kind, type)
        and issubclass(kind, Message)
        and not issubclass(kind, OperatorView)
        and kind not in (Message, OperatorView)
    }
    assert kinds == all_kinds


@pytest.mark.parametrize("name", INBOUND)
def test_no_text_list_or_mapping_of_a_message_is_unbounded(name: str) -> None:
    message = INBOUND[name]
    adapter: TypeAdapter[Any] = TypeAdapter(type(message))
    whole = message.model_dump(mode="json")
    looked_at = 0
    for path in places(whole):
        if not path:
            continue
        looked_at += 1
        content = json.dumps(swollen(whole, path))
        try:
            parsed = adapter.validate_json(content)
        except ValidationError:
            continue
        size = len(parsed.model_dump_json())
        assert size <= len(json.dumps(whole)) + 3 * MOST_SENTENCE, path
    assert looked_at or name == "registered"


def test_no_field_of_a_schema_is_left_out() -> None:
    """Including fields that are empty in the examples: every mapping of a description has one knob."""
    knob = {"name": "k", "values": [1], "default": 1}
    registration = MESSAGES["registration"].model_dump(mode="json")
    registration["device"]["space"] = {"knobs": [knob] * (MOST_ITEMS + 1), "only": []}
    with pytest.raises(ValidationError, match=f"knobs: more than {MOST_ITEMS} items"):
        Registration.model_validate(registration)
    registration["device"]["space"] = {"knobs": [knob], "only": [{"k": 1}] * (MOST_SETTINGS + 1)}
    with pytest.raises(ValidationError, match="only: more than"):
        Registration.model_validate(registration)


def test_a_measured_table_of_some_thousand_settings_is_taken() -> None:
    values = list(range(3_000))
    registration = MESSAGES["registration"].model_dump(mode="json")
    registration["device"]["space"] = {
        "knobs": [{"name": "k", "values": values, "default": 0}],
        "only": [{"k": value} for value in values],
    }
    assert Registration.model_validate(registration).device.space.size == 3_000


def test_a_long_sentence_is_shortened_and_its_trial_is_not_lost() -> None:
    """For example an agent that sends a compiler's whole output as the reason of a failure."""
    report = MESSAGES["trial-report"].model_dump(mode="json")
    report["outcome"]["reason"] = "\x1b[31mfailed\x1b[0m\n" * 100_000
    reason = type(MESSAGES["trial-report"]).model_validate(report).outcome.reason  # type: ignore[attr-defined]
    assert len(reason) <= MOST_SENTENCE and reason.startswith("\ufffd[31mfailed\ufffd[0m\n")
    assert completed().reason == ""


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "a\x00", "\x9b31m", "\u202eexe.txt"])
def test_control_characters_in_an_id_are_refused_by_name(text: str) -> None:
    """A terminal obeys them: https://cwe.mitre.org/data/definitions/150.html."""
    registration = MESSAGES["registration"].model_dump(mode="json")
    registration["device"]["id"] = text
    with pytest.raises(ValidationError, match=r"id: .* has control characters"):
        Registration.model_validate(registration)
    assert b"\x1b" not in visible("\x1b]0;title\x07\ud83d").encode()


@pytest.mark.parametrize(
    "field", ["window_s", "max_window_s", "lease_s", "valid_for_s", "observe_s"]
)
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "0", "1e300"])
def test_an_order_with_an_invalid_length_is_refused(field: str, value: str) -> None:
    for name in ("assignment", "hold-order"):
        order = MESSAGES[name].model_dump(mode="json")
        if field in order:
            content = json.dumps({**order, field: 0.5}).replace(
                f'"{field}": 0.5', f'"{field}": {value}'
            )
            with pytest.raises(ValidationError, match=field):
                ORDER.validate_json(content)


MODELS = [
    kind
    for room in (wire, bodies, routes)
    for kind in vars(room).values()
    if isinstance(kind, type) and issubclass(kind, BaseModel)
]
TABLES = [FleetFile, TunerConfig, AgentConfig]


def unbounded(node: Any, where: str, *, once: bool) -> Iterator[str]:  # noqa: ANN401
    """Yield the places in a JSON schema of a number, text, list or mapping without a finite bound."""
    if isinstance(node, list):
        for inner in node:
            yield from unbounded(inner, where, once=once)
    if not isinstance(node, dict):
        return
    needs: dict[str, tuple[set[str], ...]] = {
        "number": ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}),
        "integer": ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}),
        "string": ({"maxLength", "pattern", "enum", "const", "format"},),
        "array": ({"maxItems"},),
        "object": ({"maxProperties", "properties"},),
    }
    kind = node.get("type")
    if isinstance(kind, str) and not ({"const", "enum"} & node.keys()):
        missing = [keys for keys in needs.get(kind, ()) if not keys & node.keys()]
        if missing and node.get("additionalProperties") is not False:
            yield f"{where}: {kind} without {missing}"
        words = kind == "array" and node.get("items", {}).get("type") == "string"
        if once and words and not node.get("uniqueItems") and "lines" not in where:
            yield f"{where}: a list of names that may repeat"
    for key, inner in node.items():
        if key in ("properties", "$defs"):
            for name, field in inner.items():
                yield from unbounded(field, f"{where}.{name}", once=once)
        elif key not in ("default", "enum", "const", "examples"):
            yield from unbounded(inner, where, once=once)


@pytest.mark.parametrize("kind", [*MODELS, *TABLES], ids=lambda kind: kind.__name__)
def test_no_number_text_list_or_mapping_of_a_schema_is_without_a_bound(kind: type[Any]) -> None:
    schema = TypeAdapter(kind).json_schema()
    once = not issubclass(kind, OperatorView)
    assert not list(unbounded(schema, kind.__name__, once=once))


@pytest.mark.parametrize("value", ["1e308", "-1e308", "1e19", "NaN", "Infinity"])
@pytest.mark.parametrize("field", ["floor", "floor_w", "default_w", "default"])
def test_no_cap_of_a_hostile_host_exceeds_the_counted_watts(field: str, value: str) -> None:
    report = BUDGETS["report"].model_dump(mode="json")
    report["knobs"][0][field] = 0.5
    content = json.dumps(report).replace("0.5", value)
    with pytest.raises(ValidationError, match=field):
        BudgetReport.model_validate_json(content)


def test_a_group_that_is_named_twice_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="'rack' is listed twice"):
        GridDraft(
            groups=("rack", "a", "rack"), watts=1.0, expires_at=datetime(2026, 1, 1, tzinfo=UTC)
        )


@pytest.mark.parametrize(("low", "right"), [("-Infinity", True), ("NaN", False), ("-1e300", False)])
def test_only_an_open_end_is_infinite(low: str, right: bool) -> None:
    estimate = {"mean": 1.0, "low": low, "high": "Infinity"}
    report = MESSAGES["hold-report"].model_dump(mode="json")
    report["measurement"]["estimates"] = {"energy_j": estimate}
    if right:
        type(MESSAGES["hold-report"]).model_validate_json(json.dumps(report))
        return
    with pytest.raises(ValidationError, match="low"):
        type(MESSAGES["hold-report"]).model_validate_json(json.dumps(report))


class Counts(Message):
    """A message with numbers as keys and as values."""

    by_row: dict[int, float]


def test_numbers_are_strict_except_as_keys_of_json() -> None:
    counts = Counts(by_row={0: 1.0, 3: 2.5})
    assert Counts.model_validate_json(counts.model_dump_json()) == counts
    for value in ("true", '"1e9"'):
        with pytest.raises(ValidationError, match="valid number"):
            Counts.model_validate_json(f'{{"by_row": {{"0": {value}}}}}')


def test_deep_nesting_is_refused() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="deep"):
        bounded(deep)


def test_why_a_device_takes_no_orders_is_at_most_a_sentence() -> None:
    poll = MESSAGES["poll"]
    assert isinstance(poll, Poll)
    made = Poll(agent="a/1", applied=poll.applied, unable="x" * 7_500_000)
    assert len(made.unable) == MOST_SENTENCE
    with pytest.raises(ValidationError, match=f"agent: more than {MOST_TEXT} characters"):
        Poll(agent="x" * 7_500_000, applied=poll.applied)


@pytest.fixture(scope="module")
def site() -> Site:
    return Site(worlds.operations(memory_store()))


def test_no_parameter_of_a_path_a_query_or_a_header_is_without_a_bound(site: Site) -> None:
    found = dict[str, Any]()
    with site.signed_in() as browser:
        for paths in (browser.get("/v1/openapi.json").json(), site.pages.openapi()):
            for path, methods in paths["paths"].items():
                for method, about in methods.items():
                    for one in about.get("parameters", ()):
                        found[f"{method} {path} {one['name']}"] = one["schema"]
    assert len(found) > 80
    assert not [w for where, schema in found.items() for w in unbounded(schema, where, once=True)]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/events?last=99999999999999999999",
        "/v1/events?last=-1",
        f"/v1/events?device={'x' * 2_000}",
        f"/v1/studies/{'x' * 2_000}",
        f"/studies/{'9' * 30}/trials/{'9' * 30}",
        "/?page=99999999999999999999",
        f"/history?device={'x' * 2_000}",
    ],
)
def test_a_parameter_outside_its_bounds_is_refused(site: Site, path: str) -> None:
    with site.signed_in() as browser:
        assert browser.get(path).status_code == 422
