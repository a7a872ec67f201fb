from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from agents.tuner_link.spool import Report, Spool
from tests.builders import completed, setting
from tests.errors import raised
from tests.fakes import failing
from tuner import files
from tuner.bounds import MOST_TEXT
from tuner.core import (
    Forbidden,
    InvalidInput,
    LinkError,
    NotFound,
    StaleToken,
    StoreError,
    TuningError,
    Unauthorised,
)
from tuner.wire import HoldReport, TrialReport


def report(trial: int) -> TrialReport:
    return TrialReport(
        device="d", study="s", trial=trial, attempt=1, token=trial, nonce="n", outcome=completed()
    )


def window(revision: int, ended: str = "") -> HoldReport:
    return HoldReport(device="d", study="s", revision=revision, setting=setting(), ended=ended)


class Far:
    """The other end: accepts reports until a test makes it fail."""

    def __init__(self) -> None:
        self.taken: list[Report] = []
        self.error: TuningError | None = None

    def send(self, message: Report) -> None:
        if self.error is not None:
            raise self.error
        self.taken.append(message)


def test_reports_arrive_whole_and_in_order(tmp_path: Path) -> None:
    spool, far = Spool(tmp_path), Far()
    sent: list[Report] = [report(1), window(2), report(3), window(4, ended="released")]
    for message in sent:
        spool.put(message)
    assert spool.deliver(far.send) == 4
    assert far.taken == sent
    assert spool.waiting() == []


def test_a_restart_continues_where_it_was(tmp_path: Path) -> None:
    Spool(tmp_path).put(report(1))
    again, far = Spool(tmp_path), Far()
    again.put(report(2))
    again.deliver(far.send)
    assert far.taken == [report(1), report(2)]


@pytest.mark.parametrize("error", [LinkError("down"), Unauthorised("no"), StoreError("full")])
def test_a_failure_not_caused_by_a_report_keeps_it_first(
    tmp_path: Path, error: TuningError
) -> None:
    spool, far = Spool(tmp_path), Far()
    spool.put(report(1))
    spool.put(report(2))
    far.error = error
    with pytest.raises(type(error)):
        spool.deliver(far.send)
    far.error = None
    spool.deliver(far.send)
    assert far.taken == [report(1), report(2)]


def test_a_crash_after_sending_sends_again(tmp_path: Path) -> None:
    spool, far = Spool(tmp_path), Far()
    spool.put(report(1))

    def die_after(message: Report) -> None:
        far.send(message)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spool.deliver(die_after)
    Spool(tmp_path).deliver(far.send)
    assert far.taken == [report(1), report(1)]


def test_a_crash_while_writing_leaves_no_half_report(tmp_path: Path) -> None:
    (tmp_path / ".000000000001-trial.json.new").write_text('{"device": "d", "stu')
    spool, far = Spool(tmp_path), Far()
    spool.put(report(1))
    assert spool.deliver(far.send) == 1
    assert far.taken == [report(1)]


@pytest.mark.parametrize(
    "error", [InvalidInput("bad"), NotFound("gone"), StaleToken("late"), Forbidden("not yours")]
)
def test_a_refused_report_is_set_aside_with_the_reason(tmp_path: Path, error: TuningError) -> None:
    spool, far = Spool(tmp_path), Far()
    spool.put(report(1))
    spool.put(report(2))

    def send(message: Report) -> None:
        if message == report(1):
            raise error
        far.send(message)

    assert spool.deliver(send) == 1
    assert far.taken == [report(2)] and spool.waiting() == []
    (kept,) = (tmp_path / "refused").glob("*.json")
    refusal = json.loads(kept.read_text())
    assert refusal["why"] == str(error)
    assert TrialReport.model_validate_json(refusal["report"]) == report(1)
    assert (spool.refused, spool.dropped) == (1, 0)


def test_a_damaged_report_does_not_stop_the_rest(tmp_path: Path) -> None:
    spool, far = Spool(tmp_path), Far()
    spool.put(report(1))
    spool.put(report(2))
    spool.waiting()[0].write_text('{"device":')
    assert spool.deliver(far.send) == 1
    assert far.taken == [report(2)]
    assert len(list((tmp_path / "refused").glob("*.json"))) == 1


def test_a_full_spool_loses_the_oldest_window_first(tmp_path: Path) -> None:
    spool, far = Spool(tmp_path, most=3), Far()
    for message in (report(1), window(2), window(3), window(4, ended="expired"), report(5)):
        spool.put(message)
    spool.deliver(far.send)
    assert far.taken == [report(1), window(4, ended="expired"), report(5)]
    assert (spool.refused, spool.dropped) == (0, 2)


def test_waiting_reports_are_counted_with_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path)
    assert spool.size() == (0, 0)
    spool.put(report(1))
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", failing(errno.ENOSPC))
        spool.put(report(2))
    sizes = [len(report(number).model_dump_json().encode()) for number in (1, 2)]
    assert spool.size() == (2, sum(sizes))


def test_many_threads_lose_and_repeat_no_report(tmp_path: Path) -> None:
    spool, far, lock = Spool(tmp_path), Far(), threading.Lock()

    def send(message: Report) -> None:
        with lock:
            far.send(message)

    def work(first: int) -> None:
        for trial in range(first, first + 5):
            spool.put(report(trial))
            spool.deliver(send)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 11, 21, 31)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = [message.trial for message in far.taken if isinstance(message, TrialReport)]
    assert sorted(trials) == sorted([*range(1, 6), *range(11, 16), *range(21, 26), *range(31, 36)])


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("")
    with raised(StoreError, "write"):
        files.write(tmp_path / "in the way" / "file", "text")


def test_a_file_name_has_nothing_that_leads_elsewhere() -> None:
    assert files.file_name("../a b/c@host", ".json") == "..-a-b-c@host.json"


def test_a_refused_report_longer_than_a_message_text_is_kept_whole(tmp_path: Path) -> None:
    spool, far = Spool(tmp_path), Far()
    far.error = NotFound("study s has no trial 1")
    message = report(1).model_copy(update={"nonce": "n" * 900})
    spool.put(message)
    spool.deliver(far.send)
    (kept,) = (tmp_path / "refused").glob("*.json")
    refused = json.loads(kept.read_bytes())["report"]
    assert len(refused) > MOST_TEXT and TrialReport.model_validate_json(refused) == message


def test_a_report_that_the_disk_refuses_is_still_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, far = Spool(tmp_path), Far()
    assert spool.put(report(1))
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    assert not spool.put(report(2))
    assert spool.deliver(far.send) == 2
    assert far.taken == [report(1), report(2)]
    assert spool.deliver(far.send) == 0


def test_a_refused_write_is_repeated_once_the_disk_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, far = Spool(tmp_path), Far()
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", failing(errno.ENOSPC))
        spool.put(report(1))
    far.error = LinkError("down")
    with pytest.raises(LinkError):
        spool.deliver(far.send)
    far.error = None
    Spool(tmp_path).deliver(far.send)
    assert far.taken == [report(1)]


def test_a_report_that_cannot_be_deleted_is_not_sent_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, far = Spool(tmp_path), Far()
    spool.put(report(1))
    with monkeypatch.context() as stuck:
        stuck.setattr(os, "unlink", failing(errno.EROFS))
        for _ in range(3):
            spool.deliver(far.send)
    spool.deliver(far.send)
    assert far.taken == [report(1)]
    assert list(tmp_path.glob("*.json")) == []


def test_a_refusal_that_cannot_be_kept_stops_no_other_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, far = Spool(tmp_path), Far()
    spool.put(report(1))
    spool.put(report(2))

    def send(message: Report) -> None:
        if message == report(1):
            raise NotFound("gone")
        far.send(message)

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", failing(errno.ENOSPC))
        spool.deliver(send)
    assert far.taken == [report(2)]
    assert [path.name for path in spool.waiting()] == ["000000000001-trial.json"]
    spool.deliver(send)
    assert spool.waiting() == []
    assert len(list((tmp_path / "refused").glob("*.json"))) == 1


def test_a_report_that_cannot_be_read_waits_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, far = Spool(tmp_path), Far()
    spool.put(report(1))
    spool.put(report(2))
    read = Path.read_bytes

    def once(path: Path) -> bytes:
        monkeypatch.setattr(Path, "read_bytes", read)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", once)
    spool.deliver(far.send)
    spool.deliver(far.send)
    assert far.taken == [report(2), report(1)]
