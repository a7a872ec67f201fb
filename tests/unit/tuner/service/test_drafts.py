"""The study that follows from an operator's draft, with its restricted space."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.polythrottle.policy import Polythrottle, TwoPhase
from tests.builders import device, study
from tests.errors import raised
from tuner.core import (
    Condition,
    Cost,
    InvalidInput,
    Knob,
    OutOfRange,
    Part,
    Role,
    Signal,
    Space,
    Terms,
    TuningError,
    UnknownKnob,
)
from tuner.service.drafts import (
    refuse_controls,
    refuse_plan,
    refuse_shared_joules,
    space_of,
)
from tuner.wire import StudyDraft

CLOCK = Knob("cpu.max_mhz", (800, 1600, 3200), 3200)
BOOST = Knob("cpu.boost", ("off", "on"), "on", role=Role.BOOST)
GOVERNOR = Knob("cpu.governor", ("performance", "powersave"), "powersave")
DRAFT = Knob("draft", ("none", "small"), "none", Part.WORKLOAD)
REPLICAS = Knob("replicas", (1, 2), 1, Part.WORKLOAD, Cost(restart=True))


def searched(*knobs: Knob, no_restart: bool = False, **choices: tuple[str, ...]) -> dict[str, int]:
    draft = StudyDraft(
        devices=("sim",),
        policy="sobol",
        terms=Terms(allow_restart=not no_restart),
        choices={name.replace("_", "."): values for name, values in choices.items()},
    )
    space = space_of([device(space=Space(knobs))], draft)
    return {knob.name: len(knob.values) for knob in space.knobs}


def test_a_devices_knobs_of_words_stay_as_found_unless_they_are_chosen() -> None:
    assert searched(CLOCK, GOVERNOR)["cpu.governor"] == 1
    chosen = searched(CLOCK, GOVERNOR, cpu_governor=("performance", "powersave"))
    assert chosen["cpu.governor"] == 2


def test_words_with_an_order_that_is_declared_are_searched() -> None:
    assert searched(CLOCK, BOOST)["cpu.boost"] == 2


def test_a_workloads_words_are_searched() -> None:
    assert searched(CLOCK, DRAFT)["draft"] == 2


def test_restarting_knobs_stay_at_their_default_on_request() -> None:
    assert searched(CLOCK, REPLICAS)["replicas"] == 2
    assert searched(CLOCK, REPLICAS, no_restart=True)["replicas"] == 1


def test_words_alone_are_nothing_to_search() -> None:
    with raised(InvalidInput, "sim") as caught:
        searched(GOVERNOR)
    assert caught.value.hint == "offer more than one value of cpu.governor"


def test_the_joules_of_a_shared_device_count_only_with_a_given_share() -> None:
    shared = device(shared="MIG is on")
    draft = StudyDraft(devices=("sim",))
    refuse_shared_joules(draft, [device()])
    with raised(InvalidInput, "MIG") as caught:
        refuse_shared_joules(draft, [device(), shared])
    assert "energy_share in the study's terms" in caught.value.hint
    for share in (0.25, 1.0):
        refuse_shared_joules(
            draft.model_copy(update={"terms": Terms(energy_share=share)}), [shared]
        )


def test_control_windows_of_several_devices_are_refused() -> None:
    terms = Terms(control_share=0.02)
    refuse_controls(StudyDraft(devices=("sim",), terms=terms))
    refuse_controls(StudyDraft(devices=("sim", "sam")))
    with raised(InvalidInput, "one device"):
        refuse_controls(StudyDraft(devices=("sim", "sam"), terms=terms))


def test_a_knob_by_choice_stays_as_it_is_unless_its_values_are_named() -> None:
    # RTX 5090: any finite memory lock moves performance by up to 32 %.
    memory = Knob("gpu.mem_clock", (405, 7251), 7251, by_choice=True)
    assert searched(CLOCK, memory)["gpu.mem_clock"] == 1
    draft = StudyDraft(devices=("sim",), policy="sobol", choices={memory.name: (405, 7251)})
    space = space_of([device(space=Space((CLOCK, memory)))], draft)
    assert space.knob(memory.name).values == (405, 7251)


WORKERS = Knob("workers", (0, 2, 4), 0, Part.WORKLOAD)
PREFETCH = Knob("prefetch", (2, 4, 8), 2, Part.WORKLOAD)


def conditioned(space: Space, **wishes: object) -> Space:
    draft = StudyDraft(devices=("sim",)).model_copy(update=wishes)
    return space_of([device(space=space)], draft)


def test_settings_that_a_condition_makes_alike_are_searched_once() -> None:
    space = Space((WORKERS, PREFETCH))
    assert conditioned(space).size == 9
    assert conditioned(space, conditions={"prefetch": "workers > 0"}).size == 7
    cut = {"choices": {"workers": (0, 4)}, "conditions": {"prefetch": "workers == 4"}}
    assert conditioned(space, **cut).size == 4


@pytest.mark.parametrize(
    ("conditions", "kind", "named"),
    [
        ({"fan": "workers > 0"}, UnknownKnob, "fan"),
        ({"prefetch": "fan > 0"}, UnknownKnob, "fan"),
        ({"prefetch": "workers > 2"}, OutOfRange, "workers > 2"),
        ({"prefetch": "prefetch > 2"}, InvalidInput, "itself"),
        ({"prefetch": "workers > 0", "workers": "prefetch > 2"}, InvalidInput, "cycle"),
        ({"prefetch": "often"}, InvalidInput, "often"),
    ],
)
def test_a_condition_that_does_not_fit_the_values_that_are_left_is_refused(
    conditions: dict[str, str], kind: type[TuningError], named: str
) -> None:
    with raised(kind, named):
        conditioned(Space((WORKERS, PREFETCH)), choices={"workers": (0, 2)}, conditions=conditions)


def test_a_devices_condition_never_prevents_a_choice() -> None:
    own = Space((CLOCK, WORKERS, replace(PREFETCH, condition=Condition.parse("workers > 0"))))
    assert conditioned(own).size == 21
    assert conditioned(own, choices={"workers": (0,)}).size == 3


def test_a_plan_follows_only_signals_of_the_target_and_the_policy() -> None:
    terms = Terms(plan_by="arrival_rate_per_s")
    offered = (Signal("arrival_rate_per_s", "1/s"), Signal("waiting"))
    refuse_plan(study(), TwoPhase())
    refuse_plan(study(terms=terms, signals=offered), Polythrottle())
    with raised(InvalidInput, "arrival_rate_per_s") as caught:
        refuse_plan(study(terms=terms, signals=offered[1:]), Polythrottle())
    assert "waiting" in caught.value.hint
    with raised(InvalidInput, "plan_by cannot be 'hour'"):
        refuse_plan(study(terms=Terms(plan_by="hour")), Polythrottle())
    with raised(InvalidInput, "policy"):
        refuse_plan(study(terms=terms, signals=offered), TwoPhase())
    with raised(InvalidInput, "plan_by cannot be 'waiting,hour'", "--plan-by one signal: waiting"):
        refuse_plan(study(terms=Terms(plan_by="waiting,hour"), signals=offered), Polythrottle())
    with raised(InvalidInput, "one device"):
        both = study(terms=terms, signals=offered, devices=("a", "b"))
        refuse_plan(both, Polythrottle())


def test_a_study_whose_knobs_all_restart_the_workload_names_the_option_that_allows_it() -> None:
    with raised(InvalidInput, REPLICAS.name) as refused:
        searched(REPLICAS, no_restart=True)
    assert "--allow-restart" in refused.value.hint
