"""`jouletune run` with one tuner and one agent as processes, and its failures."""

from __future__ import annotations

import csv
import json
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from db import open_store
from tests.integration.folder import Folder
from tests.processes import command_line, kill, until
from tuner.cli.runfile import read_run
from tuner.core import FleetStop

LIMIT = "latency_p99_ms <= 1.2x baseline"
# Without the model, whose libraries take seconds to load, and so without a control arm.
PLAIN = ("run", "--device", "simulated:orin", "--policy", "sobol")


@pytest.mark.slow
def test_a_simulated_board_is_tuned_and_scored(folder: Folder) -> None:
    result = folder.run("--device", "simulated:orin", "--trials", "4", "--seed", "1")
    assert result["study"]["policy"] == "polythrottle"
    assert result["study"]["constraints"] == [LIMIT]
    assert sum(t["phase"] == "tuning" for t in result["trials"]) == 4
    assert {e["origin"] for e in result["baseline"]["metrics"].values()} == {"simulated"}
    truth = result["truth"]
    energy = {name: truth[name]["metrics"]["energy_j"] for name in ("baseline", "best", "oracle")}
    gain = (energy["baseline"] - energy["best"]) / (energy["baseline"] - energy["oracle"])
    assert result["captured"] == pytest.approx(gain)
    assert energy["oracle"] < energy["baseline"]
    limit = 1.2 * truth["baseline"]["metrics"]["latency_p99_ms"]
    assert result["feasible"] == (truth["best"]["metrics"]["latency_p99_ms"] <= limit)
    assert result["control"]["policy"] == "sobol"
    assert result["control"]["trials"] >= 6
    assert folder.processes() == []
    assert not list((folder.state / "agent" / "journal").glob("*.journal"))
    studies = json.loads(folder.ask("study", "list", "--json")[1])
    assert [s["phase"] for s in studies] == ["stopped", "stopped"]


@pytest.mark.slow
def test_a_run_for_people_ends_with_a_report(folder: Folder) -> None:
    code, out, err = folder.ask(
        "run", "--device", "simulated:a100", "--trials", "2", "--policy", "sobol",
        "--constraint", "latency_p99_ms <= 100", "--window", "5",
    )  # fmt: skip
    assert (code, err) == (0, "")
    for part in (
        "trial 1 completed",
        "Study ",
        "bill  ",
        "truth  ",
        "origin  ",
        "Summary:",
        "More:",
    ):
        assert part in out
    assert "control" not in out, "sobol is not shown beside itself"
    assert "Study " in (folder.state / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_a_table_is_replayed_by_its_own_metrics(folder: Folder) -> None:
    table = folder.path / "measured.csv"
    with table.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["surface", "device", "workload", "clock_mhz", "energy_j", "latency_s", "power_w"]
        )
        for step in range(12):
            clock = 600 + 100 * step
            seconds = 100.0 / clock
            joules = 5.0 + 3.0 * abs(step - 4) + 1.0
            writer.writerow(["b|w", "b", "w", clock, joules, seconds, joules / seconds])
    result = folder.run("--device", "replay:measured.csv", "--trials", "3", "--policy", "sobol")
    assert result["study"]["constraints"] == ["latency_ms <= 1.2x baseline"]
    assert {e["origin"] for e in result["baseline"]["metrics"].values()} == {"replayed"}
    assert result["truth"]["oracle"]["setting"] == {"clock_mhz": 1500}


@pytest.mark.slow
def test_a_policy_that_fails_ends_the_run_with_its_reason(folder: Folder) -> None:
    table = folder.path / "table.csv"
    rows = "".join(f"s,d,w,{clock},{clock / 100},{100 / clock}\n" for clock in (500, 1000))
    table.write_text("surface,device,workload,clock_mhz,energy_j,latency_s\n" + rows)
    code, _, err = folder.ask("run", "--device", f"replay:{table}", "--policy", "packrat")
    assert code == 1
    assert "policy packrat failed: packrat sets instances, threads, batch_size" in err
    phases = json.loads(folder.ask("study", "list", "--json")[1])
    assert [study["phase"] for study in phases] == ["stopped"]


@pytest.mark.slow
def test_an_interrupted_run_names_the_next_step_and_continues(folder: Folder) -> None:
    run = folder.start(*PLAIN, "--trials", "12")
    until(lambda: folder.trials() >= 3)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=40)
    assert run.returncode == 130
    assert err.count("\n") == 1
    assert "jouletune run --resume" in err
    assert folder.processes() == []
    before = read_run(folder.state)
    done = folder.trials()
    result = folder.run("--resume")
    assert before is not None
    assert result["study"]["id"] == before.jobs[0].study
    numbers = [t["number"] for t in result["trials"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > done >= 3
    spent = [t for t in result["trials"] if t["state"] != "aborted"]
    assert sum(t["phase"] == "tuning" for t in spent) == 12
    code, _, err = folder.ask("run", "--resume")
    assert code == 2
    assert "is complete" in err


@pytest.mark.slow
def test_killing_a_run_leaves_no_process_and_the_next_run_names_the_studies_it_stops(
    folder: Folder,
) -> None:
    run = folder.start(*PLAIN, "--trials", "40")
    until(lambda: folder.trials() >= 2)
    record = read_run(folder.state)
    assert record is not None
    run.kill()
    run.communicate()
    until(lambda: folder.processes() == [])
    code, _, err = folder.ask(*PLAIN, "--trials", "1", "--json")
    assert code == 0
    assert f"study {record.jobs[0].study} of the interrupted run is stopped" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agent", "tuner"])
def test_a_killed_process_ends_the_run_with_its_log_named(folder: Folder, name: str) -> None:
    run = folder.start(*PLAIN, "--trials", "40")
    until(lambda: folder.trials() >= 2)
    (process,) = [p for p in folder.processes() if command_line(p)[3:5] == [name, "serve"]]
    kill(process)
    _, err = run.communicate(timeout=40)
    assert run.returncode == 1
    assert f"the {name} was killed by signal 9" in err and "continue with --resume" in err
    assert str(Path(".jouletune") / f"{name}.log") in err
    assert folder.processes() == []
    assert not list((folder.state / "agent" / "journal").glob("*.journal"))


def test_a_run_does_not_wait_for_a_stop_to_be_lifted(folder: Folder) -> None:
    store = open_store(f"sqlite:///{folder.state / 'jouletune.sqlite'}")
    store.stops.order(FleetStop(at=datetime.now(UTC), who="ann", why="smoke"))
    store.close()
    code, _, err = folder.ask(*PLAIN, "--trials", "1")
    assert code == 1
    assert "every device is stopped" in err
    assert "jouletune stop-all --lift" in err
    assert folder.processes() == []
    assert folder.trials() == 0


@pytest.mark.slow
def test_two_runs_do_not_share_a_folder(folder: Folder) -> None:
    run = folder.start(*PLAIN, "--trials", "40")
    until(lambda: folder.trials() >= 1)
    code, _, err = folder.ask(*PLAIN)
    assert code == 1
    assert "another run is using the state folder" in err
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=40)
    assert folder.processes() == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--device", "gpu"], "gpu"),
        (["--device", "simulated:t4"], "t4"),
        (["--device", "replay:none.csv"], "none.csv"),
        (["--device", "cpu", "--workload", "chess"], "chess"),
        (["--device", "simulated:orin", "--policy", "magic"], "magic"),
        (["--device", "simulated:orin", "--constraint", "fast"], "fast"),
        (["--device", "simulated:orin", "--constraint", "latency_p42_ms <= 3"], "latency_p42_ms"),
        (["--device", "simulated:orin", "--trials", "0"], "trials"),
        (["--device", "simulated:orin", "--window", "nan"], "window"),
        (["--device", "simulated:orin", "--db", "mysql://h/d"], "mysql"),
        (["--device", "simulated:orin", "--db", "sqlite:////proc/none/x.sqlite"], "/proc/none"),
        (["--state-dir", "/proc/none"], "/proc/none"),
        (["--resume"], "nothing to resume"),
        (["--resume", "--trials", "3"], "--resume"),
    ],
)
def test_bad_input_gives_a_one_line_error_and_leaves_nothing_running(
    folder: Folder, arguments: list[str], named: str
) -> None:
    code, out, err = folder.ask("run", *arguments)
    assert code == 2
    assert named in err
    assert (err.startswith("error: "), err.count("\n"), out) == (True, 1, "")
    assert folder.processes() == []
    if "--state-dir" not in arguments:  # a refused run cannot be continued
        code, _, err = folder.ask("run", "--resume")
        assert code == 2 and "nothing to resume" in err
