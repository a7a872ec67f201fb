"""A waiting caller is woken by news about its device, from any thread, and by no other news."""

from __future__ import annotations

import threading

import pytest

from tests.unit.tuner.study.worlds import World
from tuner.core import Phase
from tuner.service.operations import Operations
from tuner.study.answers import News
from tuner.wire import Change


class Waiting:
    """A caller that waits for news of a device, and the number of times it was woken."""

    def __init__(self, news: News, device: str) -> None:
        self.woken = 0
        self.end = news.wait(device, news.mark(device), self._wake)

    def _wake(self) -> None:
        self.woken += 1


def test_only_requests_waiting_for_a_device_are_woken_and_once() -> None:
    news = News()
    a, b = Waiting(news, "a"), Waiting(news, "b")
    news.tell(["a"])
    news.tell(["a"])
    assert (a.woken, b.woken) == (1, 0)


def test_an_empty_notice_wakes_no_caller() -> None:
    news = News()
    a = Waiting(news, "a")
    news.tell([])
    assert a.woken == 0
    news.tell_all()
    assert a.woken == 1


def test_news_between_a_read_and_the_wait_is_not_lost() -> None:
    news, woken = News(), threading.Event()
    mark = news.mark("a")
    news.tell(["a"])
    news.wait("a", mark, woken.set)
    assert woken.is_set()


def test_a_caller_that_ended_its_wait_is_not_woken() -> None:
    news = News()
    a = Waiting(news, "a")
    a.end()
    a.end()
    news.tell(["a"])
    news.tell_all()
    assert a.woken == 0


def test_many_threads_report_and_wait_without_a_loss() -> None:
    news, rounds = News(), 200

    def follow(heard: list[int]) -> None:
        for number in range(rounds):
            woken = threading.Event()
            news.wait("a", number, woken.set)
            assert woken.wait(30.0)
            heard.append(number)

    lists: list[list[int]] = [[], []]
    threads = [threading.Thread(target=follow, args=(heard,)) for heard in lists]
    for thread in threads:
        thread.start()
    for number in range(rounds):
        while any(len(heard) < number for heard in lists):
            pass
        news.tell(["a"])
    for thread in threads:
        thread.join(30.0)
    assert [len(heard) for heard in lists] == [rounds, rounds]


@pytest.fixture
def world(held: World) -> World:
    return held


def test_every_change_of_an_operator_is_announced(world: World) -> None:
    verbs, news = Operations(world.loop), world.loop.news

    def told(do: object) -> int:
        waiting = Waiting(news, "sim")
        assert callable(do)
        do()
        waiting.end()
        return waiting.woken

    by = Change(who="ann")
    assert told(lambda: verbs.pause("s1", by)) == 1
    assert told(lambda: verbs.resume("s1", by)) == 1
    assert told(lambda: Operations(world.loop).stop_all(by)) == 1
    assert told(lambda: Operations(world.loop).lift(by)) == 1
    study = world.store.studies.get("s1")
    assert told(lambda: world.loop.changes.move(study, Phase.TUNING, "again")) == 1
    assert told(lambda: verbs.stop("s1", by)) == 1
    assert told(lambda: verbs.studies()) == 0
