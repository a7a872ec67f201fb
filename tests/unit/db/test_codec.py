from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.codec import DESCRIPTIONS, STUDIES, Description
from tests.builders import setting, study
from tuner.core import (
    PLANNED,
    Better,
    Condition,
    Constraint,
    Cost,
    Kind,
    Knob,
    Metric,
    Mode,
    Objective,
    Origin,
    OverDevices,
    OverWindows,
    Part,
    Phase,
    Plan,
    Quantity,
    Row,
    Safety,
    Scope,
    Setting,
    Signal,
    Space,
    Study,
    Terms,
    Transfer,
    Value,
    setting_key,
)

NAMES = st.text(min_size=1, max_size=8)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=1e-300, max_value=1e300)
VALUES: st.SearchStrategy[Value] = st.one_of(st.booleans(), st.integers(), FLOATS, st.text())
SETTINGS = st.dictionaries(NAMES, VALUES, max_size=4)
METRICS = st.from_regex(r"[a-z][a-z0-9_.]{0,9}", fullmatch=True)
QUANTITIES = st.builds(
    Quantity,
    NAMES,
    st.none() | st.sampled_from(Better),
    st.sampled_from(Kind),
    st.sampled_from(OverDevices),
    st.sampled_from(OverWindows),
    st.booleans(),
)
MOMENTS = st.datetimes(
    min_value=datetime(1, 1, 3),
    max_value=datetime(9999, 12, 29),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]),
)


@st.composite
def knobs(draw: st.DrawFn) -> Knob:
    values = tuple(draw(st.lists(VALUES, min_size=1, max_size=5, unique=True)))
    cost = Cost(draw(FLOATS), draw(st.booleans()))
    name, part = draw(NAMES), draw(st.sampled_from(Part))
    return Knob(name, values, draw(st.sampled_from(values)), part, cost)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    space = Space(tuple(draw(st.lists(knobs(), max_size=4, unique_by=lambda k: k.name))))
    points = st.fixed_dictionaries({k.name: st.sampled_from(k.values) for k in space.knobs})
    others = draw(st.lists(points, max_size=3))
    listed = {setting_key(setting): setting for setting in (space.default, *others)}
    return Space(space.knobs, tuple(listed.values()) if others else ())


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    bounds = sorted(draw(st.lists(FLOATS, max_size=3, unique=True)))
    gains = st.floats(0.0, 1.0)
    edges = (*bounds, math.inf)
    rows = tuple(
        Row(below, draw(SETTINGS), draw(gains), draw(st.sampled_from([None, low])))
        for low, below in zip((None, *bounds), edges, strict=True)
    )
    return Plan(rows, draw(NAMES), draw(st.floats(0, 1, exclude_max=True)))


CONSTRAINTS = st.builds(Constraint, METRICS, st.sampled_from(["<=", ">="]), POSITIVE, st.booleans())


TERMS = st.builds(
    Terms,
    trials=st.integers(1),
    window_s=st.floats(0.1, 1e3),
    max_window_s=st.floats(1e3, 1e6) | st.integers(1000, 10**8),
    allow_restart=st.booleans(),
    safety=st.sampled_from(Safety),
    mode=st.just(Mode.SEARCH),
    canary_windows=st.integers(1),
    control_share=st.floats(0.0, 0.2),
    control_hours=st.sampled_from(["0-24", "22-6"]),
    energy_share=st.none() | st.floats(0.01, 1.0),
    transfer=st.booleans(),
) | st.builds(Terms, safety=st.just(Safety.OFF), mode=st.sampled_from(Mode))


TRANSFERS = st.builds(Transfer, SETTINGS, st.integers(0))


@st.composite
def studies(draw: st.DrawFn) -> Study:
    phase = draw(st.sampled_from(Phase))
    held = phase in PLANNED
    return Study(
        id=draw(NAMES),
        devices=tuple(draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))),
        workload=draw(NAMES),
        space=draw(spaces()),
        objective=draw(st.builds(Objective, METRICS, st.sampled_from(["minimize", "maximize"]))),
        quantities=draw(st.dictionaries(METRICS, QUANTITIES, max_size=3)),
        constraints=tuple(draw(st.lists(CONSTRAINTS, max_size=2))),
        policy=draw(NAMES),
        seed=draw(st.integers()),
        terms=draw(TERMS),
        transfer=draw(TRANSFERS),
        phase=phase,
        paused_from=draw(st.sampled_from(Phase)) if phase is Phase.PAUSED else None,
        plan=draw(plans() if held else st.none() | plans()),
        revision=draw(st.integers(1)),
        since_trial=draw(st.integers(1)),
        phase_since=draw(st.integers(1)),
        created_at=draw(MOMENTS),
    )


def through_json(document: object) -> object:
    return json.loads(json.dumps(document, allow_nan=False))


def exact(point: Setting) -> list[tuple[str, type, str]]:
    """Return a form of a value that distinguishes 1 from 1.0 and True, and -0.0 from 0.0."""
    return [(name, type(value), repr(value)) for name, value in point.items()]


def held(plan: Plan) -> Study:
    return study(Phase.HOLDING, plan=plan)


def read_back(made: Study) -> Study:
    return STUDIES.decode(through_json(STUDIES.encode(made)))  # type: ignore[arg-type]


@given(spaces())
def test_a_space_survives_json(space: Space) -> None:
    decoded = read_back(replace(study(), space=space)).space
    assert decoded == space
    for ours, theirs in zip(decoded.grid(), space.grid(), strict=True):
        assert sorted(exact(ours)) == sorted(exact(theirs))


@given(plans())
def test_a_plan_survives_json(plan: Plan) -> None:
    decoded = read_back(held(plan)).plan
    assert decoded is not None and decoded == plan
    assert [exact(row.setting) for row in decoded.rows] == [exact(r.setting) for r in plan.rows]


@given(studies())
def test_a_study_survives_json(made: Study) -> None:
    assert read_back(made) == made


@given(
    st.lists(st.builds(Metric, NAMES, st.sampled_from(Origin), st.sampled_from(Scope), QUANTITIES)),
    spaces(),
)
def test_a_devices_description_survives_json(metrics: list[Metric], space: Space) -> None:
    made = Description(space, tuple(metrics), (Signal("price", "1/J"),), {"a": "no"}, {}, "some")
    assert DESCRIPTIONS.decode(through_json(DESCRIPTIONS.encode(made))) == made  # type: ignore[arg-type]


def test_no_field_of_a_study_is_forgotten() -> None:
    assert set(STUDIES.encode(study())) == {field.name for field in fields(Study)}


def test_a_plan_from_before_rows_had_a_gain_is_read() -> None:
    made = held(Plan.single(setting()))
    doc = STUDIES.encode(made)
    for row in doc["plan"]["rows"]:
        del row["gain"]
    assert STUDIES.decode(doc) == made


def test_the_siblings_of_a_study_of_before_schema_0007_are_left_out() -> None:
    made = replace(study(), transfer=Transfer(setting(600), 3))
    doc = STUDIES.encode(made)
    doc["transfer"] |= {"siblings": [{"study": "s2"}], "trust": {"same board": 0.5}}
    assert STUDIES.decode(doc) == made


def test_a_plan_for_two_signals_is_read_as_the_baseline() -> None:
    doc = STUDIES.encode(held(Plan.single(setting(600))))
    doc["terms"]["plan_by"] = "arrival_rate_per_s,waiting"
    row = doc["plan"]["rows"][0]
    cells = [row | {"column_below": below, "column_at": None} for below in (8.0, None)]
    doc["plan"] |= {"rows": cells, "by": "arrival_rate_per_s", "columns_by": "waiting"}
    read = STUDIES.decode(doc)
    assert read.plan == Plan.single(study().baseline)
    assert read.terms.plan_by == "arrival_rate_per_s,waiting"


def test_unknown_fields_are_ignored_in_a_study_and_refused_in_its_terms() -> None:
    doc = STUDIES.encode(study())
    assert STUDIES.decode(doc | {"invented": 1}) == study()
    doc["terms"]["most_watts"] = 70.0
    with pytest.raises(ValueError, match=r"terms\.most_watts"):
        STUDIES.decode(doc)


def test_the_open_end_of_a_plan_is_null() -> None:
    doc = STUDIES.encode(held(Plan.single(setting())))
    assert [row["below"] for row in doc["plan"]["rows"]] == [None]


def test_a_number_that_is_not_finite_is_not_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        through_json(STUDIES.encode(held(Plan.single({"x": math.nan}))))


def test_a_knob_stored_before_conditions_existed_is_read() -> None:
    clock = Knob("clock", (1, 2), 2)
    bound = Knob("fan", (1, 2), 1, condition=Condition("clock", ">", "1"))
    made = replace(study(), space=Space((clock, bound)))
    doc = json.loads(json.dumps(STUDIES.encode(made)))
    assert STUDIES.decode(doc) == made
    for knob in doc["space"]["knobs"]:
        del knob["condition"]
    assert STUDIES.decode(doc).space == Space((clock, replace(bound, condition=None)))


def test_a_knob_that_was_stored_before_it_could_have_breaks_has_none() -> None:
    stored = STUDIES.encode(study())
    for one in stored["space"]["knobs"]:
        del one["breaks"]
    assert STUDIES.decode(stored) == study()
