"""The jobs of a run by its flags."""

from __future__ import annotations

import pytest

from tests.builders import METRICS, device
from tests.errors import raised
from tuner.cli.run.jobs import Wishes, draft, requested_jobs
from tuner.cli.runfile import RunJob
from tuner.core import Better, InvalidInput, Metric, Quantity

FRAMES = Quantity("1/s", Better.MORE)
CPU_METRICS = tuple(Metric(m) for m in ("cpu_time_ms", "latency_p99_ms", "throughput_per_s"))
TABLE_METRICS = tuple(Metric(m) for m in ("energy_j", "latency_ms"))


def test_without_flags_a_run_has_the_simulated_board_and_this_machine() -> None:
    simulated, real = requested_jobs(Wishes())
    assert (simulated.spec, simulated.policy) == ("simulated:orin", "polythrottle")
    assert (real.spec, real.seed) == ("cpu=reference", 0)
    assert simulated.constraints is not None
    assert any("throughput_per_s" in limit for limit in simulated.constraints), (
        "a saving that costs work"
    )
    assert real.constraints is None


def test_a_board_that_the_operator_names_has_no_default_limit() -> None:
    assert requested_jobs(Wishes(device="simulated:orin"))[0].constraints is None
    first, second = requested_jobs(Wishes(constraints=("latency_p99_ms <= 50",)))
    assert first.constraints == second.constraints == ("latency_p99_ms <= 50",)


def test_flags_reach_the_job() -> None:
    wishes = Wishes(
        device="simulated:a100",
        workload="bert",
        policy="sobol",
        objective="power_w",
        constraints=("latency_p99_ms <= 50",),
        trials=7,
        window_s=3.0,
        seed=4,
    )
    assert requested_jobs(wishes) == [
        RunJob(
            device="simulated:a100/bert",
            policy="sobol",
            objective="power_w",
            constraints=("latency_p99_ms <= 50",),
            trials=7,
            window_s=3.0,
            seed=4,
        )
    ]


def test_an_objective_of_the_workload_itself_is_left_to_the_tuner_to_judge() -> None:
    assert requested_jobs(Wishes(device="cpu", objective="score"))[0].objective == "score"


def test_the_cpu_runs_the_reference_by_default() -> None:
    assert requested_jobs(Wishes(device="cpu"))[0].spec == "cpu=reference"
    served = Wishes(device="cpu", workload="http://127.0.0.1:80")
    assert requested_jobs(served)[0].spec == "cpu=http://127.0.0.1:80"


@pytest.mark.parametrize(
    ("wishes", "named"),
    [
        (Wishes(device="gpu"), "gpu"),
        (Wishes(device="simulated:t4"), "t4"),
        (Wishes(device="simulated:a100", workload="chess"), "chess"),
        (Wishes(device="replay:none.csv"), "none.csv"),
        (Wishes(constraints=("latency low",)), "latency low"),
        (Wishes(device="cpu", objective="least energy_j"), "least"),
        (Wishes(trials=0), "trials"),
        (Wishes(window_s=float("nan")), "window"),
        (Wishes(window_s=-1.0), "window"),
        (Wishes(objective="energy_j"), "--objective"),
        (Wishes(workload="bert"), "--workload"),
    ],
)
def test_detectable_mistakes_are_refused_before_anything_starts(wishes: Wishes, named: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        requested_jobs(wishes)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("metrics", "objective", "constraints"),
    [
        (METRICS, "energy_j", ("latency_p99_ms <= 1.2x baseline",)),
        (CPU_METRICS, "cpu_time_ms", ("latency_p99_ms <= 1.2x baseline",)),
        (TABLE_METRICS, "energy_j", ("latency_ms <= 1.2x baseline",)),
        (TABLE_METRICS[1:], "latency_ms", None),
        (TABLE_METRICS[:1], "energy_j", None),  # refused until an operator chooses ()
    ],
)
def test_a_jobs_open_values_follow_from_the_measured_metrics(
    metrics: tuple[Metric, ...], objective: str, constraints: tuple[str, ...] | None
) -> None:
    made = draft(RunJob(device="x"), device(metrics=metrics), "sobol", "ann")
    assert (made.objective, made.constraints) == (objective, constraints)
    assert (made.policy, made.who, made.devices) == ("sobol", "ann", ("sim",))


def test_a_jobs_given_values_stay_even_if_not_measured() -> None:
    job = RunJob(device="cpu", objective="energy_j", constraints=(), trials=3, window_s=2.0)
    made = draft(job, device(metrics=CPU_METRICS), "sobol", "ann")
    assert (made.objective, made.constraints) == ("energy_j", ())
    assert (made.terms.trials, made.terms.window_s, made.terms.max_window_s) == (3, 2.0, 12.0)


def test_a_device_that_measures_nothing_useful_needs_an_objective() -> None:
    with raised(InvalidInput, "--objective"):
        draft(
            RunJob(device="x"), device(metrics=(Metric("frames", quantity=FRAMES),)), "sobol", "ann"
        )


def test_a_policy_that_does_not_exist_is_refused_before_anything_starts() -> None:
    with raised(InvalidInput, "magic", "polythrottle"):
        requested_jobs(Wishes(device="cpu", policy="magic"))
