"""Records and sockets beside other jobs' prologs and killed processes."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from agents.job import record as record_module
from agents.job.record import JobRecords


@pytest.fixture
def records(tmp_path: Path) -> JobRecords:
    return JobRecords(tmp_path / "jobs")


def state(records: JobRecords, key: str) -> str:
    found: dict[str, str] = json.loads((records.folder / f"{key}.json").read_text())
    return found["state"]


def test_the_end_of_a_killed_process_is_noted(records: JobRecords) -> None:
    for key in ("1-0", "2-0"):
        records.note(key, state="leased")
        records.listen(key).close()  # as kill -9 leaves it
    assert records.end("the epilog", "1-0", "9-0") == []
    assert state(records, "1-0") == "ended"
    records.prune()
    assert state(records, "2-0") == "ended"
    assert not [*records.folder.glob("*.sock")]


def test_prologs_prune_at_the_same_time_and_keep_running_jobs(
    records: JobRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "MOST_RECORDS", 5)
    records.note("0-0", state="leased")
    line, failed = records.listen("0-0"), list[Exception]()

    def prolog(number: int) -> None:
        for job in range(60):
            records.note(f"{number}-{job}", state="ended")
            try:
                records.prune()
            except OSError as error:
                failed.append(error)

    threads = [threading.Thread(target=prolog, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records.prune()
    assert failed == []
    assert state(records, "0-0") == "leased"
    assert len([*records.folder.glob("*.json")]) == 6
    records.forget("0-0", line)


def test_stuck_processes_delay_by_one_deadline(records: JobRecords) -> None:
    stuck = [records.listen(key) for key in ("1-0", "2-0", "3-0")]
    began = time.monotonic()
    assert records.end("the next job", "1-0", "2-0", "3-0", within_s=0.3) == ["1-0", "2-0", "3-0"]
    assert time.monotonic() - began < 0.6
    for line in stuck:
        caller, _ = line.accept()
        with caller:
            assert caller.recv(64) == b"the next job"
        line.close()


def test_a_lease_is_found_by_any_name_of_its_gpu(records: JobRecords) -> None:
    records.note("1-0", gres=[0, 1])
    records.note("2-0", uuids=["GPU-a"])
    records.note("3-0", exclusive=True)
    (records.folder / "4-0.json").write_text("[]")  # a broken one hides no other
    lines = [records.listen(key) for key in ("1-0", "2-0", "3-0", "4-0")]
    assert {*records.leases_on((1,), ())} == {"1-0", "3-0"}
    assert {*records.leases_on((), ("GPU-a", "GPU-b"))} == {"2-0", "3-0"}
    assert {*records.leases_on((2,), ())} == {"3-0"}
    for line in lines:
        line.close()
