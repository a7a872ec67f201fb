"""`jouletune packrat plan` as a black box: files in, plans, pictures and refusals out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.app import main

HEADER = "model,threads,batch_size,latency_s"
# Published: Inception-v3 at batch 1 on 16 and on 8 threads. The other rows are made up.
TABLE = f"""{HEADER}
inception,16,1,0.0323
inception,8,1,0.0275
inception,16,8,0.0800
inception,8,4,0.0640
inception,4,2,0.0518
bert,16,16,0.0600
bert,8,8,0.0400
"""
SIDE_BY_SIDE = """model,instances,threads,batch_size,latency_s,latency_stderr_s
net,1,4,4,2.00,0.01
net,1,2,2,1.60,0.01
net,1,1,1,1.00,0.01
net,2,2,2,1.68,0.01
net,2,1,1,1.05,0.01
net,4,1,1,1.15,0.01
"""

Plan = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plan:
    def answer(table: str, *options: object) -> tuple[int, str, str]:
        file = tmp_path / "profile.csv"
        file.write_text(table, "utf-8")
        code = main(["packrat", "plan", "--profile", str(file), *(str(o) for o in options)])
        return (code, *capsys.readouterr())

    return answer


def parsed(answer: tuple[int, str, str]) -> Any:  # noqa: ANN401
    code, out, err = answer
    assert (code, err) == (0, "")
    return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def asked(threads: int, batch: int, model: str = "inception") -> list[object]:
    return ["--model", model, "--threads", threads, "--batch", batch]


def test_cores_stay_idle_where_that_is_faster(plan: Plan) -> None:
    answer = parsed(plan(TABLE, *asked(16, 1), "--json"))
    assert answer["plan"] == [{"instances": 1, "threads": 8, "batch": 1}]
    assert (answer["predicted_latency_s"], answer["fat_latency_s"]) == (0.0275, 0.0323)
    assert answer["speedup"] == pytest.approx(0.0323 / 0.0275)
    assert answer["idle_threads"] == 8


def test_thin_instances_beat_the_fat_one(plan: Plan) -> None:
    answer = parsed(plan(TABLE, *asked(16, 8), "--json"))
    assert answer["plan"] == [{"instances": 4, "threads": 4, "batch": 2}]
    assert answer["speedup"] == pytest.approx(0.08 / 0.0518)
    assert len(answer["notes"]) == 1 and "no rows of several instances" in answer["notes"][0]


def test_the_plan_lists_the_cores_of_each_instance(plan: Plan) -> None:
    code, out, err = plan(TABLE, *asked(16, 1))
    assert (code, err) == (0, "")
    assert "8 (cores 0–7)" in out
    assert "8 idle (cores 8–15)" in out
    assert "single instance:  32.30 ms" in out
    assert "1.17 × the single instance" in out


def test_instances_may_differ(plan: Plan) -> None:
    table = f"{HEADER}\nm,1,1,1.0\nm,1,2,1.2\nm,2,4,1.9\n"
    mixed = parsed(plan(table, *asked(2, 3, "m"), "--json"))
    assert mixed["plan"] == [
        {"instances": 1, "threads": 1, "batch": 2},
        {"instances": 1, "threads": 1, "batch": 1},
    ]


def test_a_batch_that_no_profiled_sizes_add_up_to_is_padded(plan: Plan) -> None:
    table = f"{HEADER}\nm,1,2,1.2\nm,2,4,1.9\n"
    padded = parsed(plan(table, *asked(2, 3, "m"), "--json"))
    assert padded["plan"] == [{"instances": 2, "threads": 1, "batch": 2}]
    assert any("room for 4" in note for note in padded["notes"])
    assert any("its cost with 4 is used" in note for note in padded["notes"])


def test_a_faster_larger_batch_is_pointed_out(plan: Plan) -> None:
    """15 = 8 + 4 + 2 + 1 waits for the 8; 16 = 4 × 4 does not."""
    table = f"{HEADER}\nm,1,1,1\nm,1,2,2\nm,1,4,4\nm,1,8,8\nm,4,16,9\n"
    answer = parsed(plan(table, *asked(4, 15, "m"), "--json"))
    assert answer["predicted_latency_s"] == 8.0
    advice = "16 items would be done in 4 s: round the batch up (--batch 16)"
    assert answer["notes"][-1] == advice
    rounded = parsed(plan(table, *asked(4, 16, "m"), "--json"))
    assert rounded["predicted_latency_s"] == 4.0
    assert advice not in rounded["notes"]


def test_the_correction_comes_from_rows_of_several_instances(plan: Plan) -> None:
    answer = parsed(plan(SIDE_BY_SIDE, "--threads", 4, "--batch", 4, "--json"))
    assert answer["plan"] == [{"instances": 4, "threads": 1, "batch": 1}]
    assert answer["predicted_latency_s"] == pytest.approx(1.15, rel=0.05)
    assert 10.0 < answer["interference_percent"] < 25.0
    assert answer["interference_error_percent"] < 10.0
    assert "slower than alone" in plan(SIDE_BY_SIDE, "--threads", 4, "--batch", 4)[1]


def test_a_gain_is_given_with_its_uncertainty(plan: Plan) -> None:
    """Other instances use half of the machine's threads: 15 % × 1/2, and the 5 % of any plan."""
    table = f"{HEADER}\nm,4,4,1.10\nm,2,2,1.00\nm,4,2,1.00\n"
    answer = parsed(plan(table, *asked(4, 4, "m"), "--json"))
    assert answer["speedup"] == pytest.approx(1.1)
    assert answer["speedup_stderr"] == pytest.approx(1.1 * math.hypot(0.075, 0.05))
    assert any("within the error of the prediction" in note for note in answer["notes"])
    sure = parsed(plan(SIDE_BY_SIDE, "--threads", 4, "--batch", 4, "--json"))
    assert 0.0 < sure["speedup_stderr"] < 0.2 < sure["speedup"] - 1.0
    assert sure["notes"] == []
    alone = parsed(plan(table, *asked(4, 2, "m"), "--json"))
    assert (alone["speedup"], alone["speedup_stderr"]) == (1.0, 0.0)
    assert "± " in plan(table, *asked(4, 4, "m"))[1]


def test_rows_measured_on_more_cores_than_one_instance_had(plan: Plan) -> None:
    """Measured: one instance on two threads at most, four side by side; two slow down half as much."""
    table = f"{HEADER},instances\nm,2,2,1,1\nm,1,1,1,1\nm,1,1,1.3,4\n"
    answer = parsed(plan(table, *asked(2, 2, "m"), "--json"))
    assert answer["interference_percent"] < 40.0


def test_a_packing_of_least_energy_under_a_limit_needs_a_meter(plan: Plan) -> None:
    table = f"{HEADER},energy_j\nm,4,4,1.0,5.0\nm,2,2,1.5,3.0\nm,1,1,2.0,1.0\n"
    options = [*asked(4, 4, "m"), "--objective", "energy_j", "--json"]
    assert parsed(plan(table, *options))["plan"] == [{"instances": 4, "threads": 1, "batch": 1}]
    limited = parsed(plan(table, *options, "--constraint", "latency_s <= 1.6x baseline"))
    assert limited["plan"] == [{"instances": 2, "threads": 2, "batch": 2}]
    assert limited["energy_j"] == 3.0


def test_throughput_within_a_limit(plan: Plan) -> None:
    table = f"{HEADER}\nm,4,8,1.0\nm,1,8,2.5\nm,1,1,0.5\n"
    options = [*asked(4, 32, "m"), "--objective", "throughput_per_s", "--json"]
    free = parsed(plan(table, *options))
    assert free["throughput_per_s"] == pytest.approx(4 * 8 / 2.5)
    limited = parsed(plan(table, *options, "--constraint", "latency_s <= 1"))
    assert limited["throughput_per_s"] == pytest.approx(8.0)


def test_memory_limits_the_number_of_instances(plan: Plan) -> None:
    table = f"{HEADER},memory_bytes\nm,4,4,3.0,1000000000\nm,1,1,1.0,1000000000\nm,2,2,2.0,\n"
    options = [*asked(4, 4, "m"), "--json"]
    assert parsed(plan(table, *options))["plan"][0]["instances"] == 4
    assert parsed(plan(table, *options, "--memory", "3GB"))["plan"][0]["instances"] == 2
    code, _, err = plan(table, *asked(4, 4, "m"), "--memory", "500MB")
    assert code == 2
    assert "does not fit" in err


def test_a_fat_instance_that_was_not_profiled_is_not_invented(plan: Plan) -> None:
    answer = parsed(plan(f"{HEADER}\nm,1,2,1.0\nm,2,1,1.0\n", *asked(2, 4, "m"), "--json"))
    assert (answer["fat_latency_s"], answer["speedup"]) == (None, None)
    assert any("cannot be compared" in note for note in answer["notes"])


def test_repeats_are_averaged(plan: Plan) -> None:
    answer = parsed(plan(f"{HEADER}\nm,1,1,1.0\nm,1,1,2.0\n", *asked(1, 1, "m"), "--json"))
    assert answer["predicted_latency_s"] == 1.5


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        (TABLE, asked(32, 8), "the profile covers 16 threads, not 32"),
        (TABLE, asked(16, 0), "batch cannot be 0"),
        (TABLE, asked(0, 8), "threads cannot be 0"),
        (TABLE, asked(16, -4), "batch cannot be -4"),
        (TABLE, asked(16, 1000), "do not fit this batch"),
        (TABLE, asked(2, 1), "the profile starts at 4 threads"),
        (TABLE, asked(16, 8, "vgg"), "no model 'vgg'; models of the file: inception, bert"),
        (TABLE, ["--threads", 16, "--batch", 8], "2 models; choose one with --model"),
        (TABLE, [*asked(16, 8), "--memory", "8GiB"], "add the column memory_bytes"),
        (TABLE, [*asked(16, 8), "--memory", "much"], "--memory cannot be 'much'"),
        (TABLE, [*asked(16, 8), "--objective", "fun"], "--objective cannot be 'fun'"),
        (TABLE, [*asked(16, 8), "--objective", "energy_j"], "the profile has no energy_j"),
        (TABLE, [*asked(16, 8), "--constraint", "latency_s <= 0.001"], "fastest point takes"),
        (TABLE, [*asked(16, 8), "--constraint", "power_w <= 5"], "does not support the constraint"),
        (TABLE, [*asked(16, 8), "--constraint", "fast"], "cannot read the constraint"),
        ("", asked(1, 1), "lacks the columns model, threads, batch_size, latency_s"),
        (TABLE.replace(",", ";"), asked(16, 8), "name its columns model,threads,"),
        (f"threads,{HEADER}\n1,m,1,1,1\n", asked(1, 1), "the column threads twice"),
        (f"{HEADER}\nm,1,1,1\n,1,2,1\n", asked(1, 1), "row 3: the model has no name"),
        (f"{HEADER}\nm,1,1,1e308\nm,1,1,1e308\n", asked(1, 1, "m"), "'1e308' is above 1e+15"),
        (f"{HEADER}\nm,1,1,1e-320\n", asked(1, 1, "m"), "must be clearly above zero"),
        (f"{HEADER}\nm,1e300,1,1\n", asked(1, 1, "m"), "threads = '1e300' is above"),
        (f"{HEADER}\n", asked(1, 1), "has no rows"),
        ("model,threads,latency_s\nm,1,1\n", asked(1, 1, "m"), "lacks the columns batch_size"),
        (f"{HEADER}\nm,1,1,nan\n", asked(1, 1, "m"), "row 2: latency_s = 'nan'"),
        (f"{HEADER}\nm,1,1,inf\n", asked(1, 1, "m"), "row 2: latency_s = 'inf'"),
        (f"{HEADER}\nm,1,1,-1\n", asked(1, 1, "m"), "row 2: latency_s = '-1'"),
        (f"{HEADER}\nm,1,1,0\n", asked(1, 1, "m"), "must be clearly above zero"),
        (f"{HEADER}\nm,1,1,\n", asked(1, 1, "m"), "row 2: latency_s = ''"),
        (f"{HEADER}\nm,1.5,1,1\n", asked(1, 1, "m"), "threads = '1.5' is not an integer"),
        (f"{HEADER}\nm,1,0,1\n", asked(1, 1, "m"), "batch_size = '0' is not an integer"),
        (f"{HEADER}\nm,1,1\n", asked(1, 1, "m"), "row 2: not as many cells"),
        (f"{HEADER},instances\nm,1,1,1,2\n", asked(1, 1, "m"), "no row of one instance"),
    ],
)
def test_bad_input_gives_one_line_with_the_next_step(
    plan: Plan, table: str, options: list[object], says: str
) -> None:
    code, out, err = plan(table, *options)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    code, out, err = plan(table, *options, "--json")
    assert (code, out) == (2, "")
    problem = json.loads(err)
    assert says.split(";")[0] in problem["message"] + problem["hint"]
    assert problem["hint"]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    file = tmp_path / "profile.csv"
    file.write_text(f"{HEADER}\nmodèle,1,1,1\n", encoding)
    assert main(["packrat", "plan", "--profile", str(file), "--threads", "1", "--batch", "1"]) == 2
    assert "name a CSV file in UTF-8" in capsys.readouterr().err


def test_blanks_around_commas_and_a_byte_order_mark_are_let_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "profile.csv"
    file.write_text(f"{HEADER}\nm,1,1,0.5\n".replace(",", ", "), "utf-8-sig")
    options = ["--threads", "1", "--batch", "1", "--json"]
    assert main(["packrat", "plan", "--profile", str(file), *options]) == 0
    assert json.loads(capsys.readouterr().out)["predicted_latency_s"] == 0.5


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["packrat", "plan", "--profile", "no.csv", "--threads", "1", "--batch", "1"]) == 2
    assert "cannot read no.csv: No such file" in capsys.readouterr().err
