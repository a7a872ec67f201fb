"""What every store of posteriors keeps to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.builders import START, device, study
from tests.errors import raised
from tuner.core import (
    Closeness,
    NotFound,
    Phase,
    Posterior,
    PosteriorKnob,
    Role,
    SiblingRef,
    Store,
    Worth,
)


def posterior(name: str = "s1", **changes: object) -> Posterior:
    """Return what a study of the one device of the tests left."""
    fields: dict[str, object] = {
        "study": name,
        "revision": 3,
        "board": "A100",
        "kind": "simulated",
        "workload": "inference",
        "versions": "driver 1, workload 1",
        "knobs": (
            PosteriorKnob("gpu.clock_mhz", Role.CORE_CLOCK, False),
            PosteriorKnob("batch_size", Role.BATCH, False),
        ),
        "points": ((0.0, 0.0), (-0.5, 0.0), (-0.9, 0.7)),
        "metrics": ("energy_j", "latency_p99_ms"),
        "means": ((0.0, -0.1, -0.3), (0.0, 0.2, 0.5)),
        "directions": (((0.0, 0.1, 0.2), (0.0, 0.1, 0.3)),),
        "baseline": {"energy_j": 10.0, "latency_p99_ms": 100.0},
        "held": {"gpu.clock_mhz": 600, "batch_size": 1},
        "aim": "minimize energy_j; latency_p99_ms <= 1.2x baseline",
        "settings": 3,
    }
    return Posterior(**{**fields, **changes})  # type: ignore[arg-type]


def stored(store: Store, *names: str) -> None:
    """Store studies to hang posteriors on."""
    for name in names:
        store.studies.add(study(id=name, devices=(name,)), "ann", "")


class PosteriorsContract:
    def test_one_is_read_as_it_was_stored(self, store: Store) -> None:
        stored(store, "s1")
        digest = store.posteriors.put(posterior(), START)
        assert store.posteriors.get([SiblingRef("s1", digest, Closeness.BOARD)]) == (posterior(),)
        assert store.posteriors.revisions() == {"s1": (3, 1)}
        assert store.posteriors.put(posterior(), START) == digest

    def test_there_is_none_of_an_unknown_study(self, store: Store) -> None:
        with raised(NotFound, "s1"):
            store.posteriors.put(posterior(), START)

    def test_a_newer_version_is_the_latest_and_some_older_ones_are_kept(self, store: Store) -> None:
        stored(store, "s1")
        refs = [
            SiblingRef(
                "s1",
                store.posteriors.put(posterior(revision=n), START + timedelta(hours=n)),
                Closeness.BOARD,
            )
            for n in range(5)
        ]
        assert store.posteriors.revisions() == {"s1": (4, 1)}
        kept = store.posteriors.get(refs)
        assert [p.revision if p else None for p in kept] == [None, None, 2, 3, 4]
        near = store.posteriors.near(device(), 9)
        assert [p.revision for _, p in near] == [4]

    def test_they_come_by_closeness_then_version_settings_and_age(self, store: Store) -> None:
        others: dict[str, dict[str, object]] = {
            "kind": {"board": "T4", "workload": "bert"},
            "stranger": {"board": "T4", "workload": "bert", "kind": "cpu"},
            "board": {"workload": "bert"},
            "workload": {"board": "T4"},
            "few": {"settings": 2},
            "old": {"settings": 9},
            "new": {"settings": 7},
            "driver": {"settings": 9, "versions": "driver 0, workload 1"},
        }
        stored(store, *others)
        for hour, (name, changes) in enumerate(others.items()):
            store.posteriors.put(posterior(name, **changes), START + timedelta(hours=hour))
        near = store.posteriors.near(device(), 9, without="old")
        assert [(ref.study, ref.closeness) for ref, _ in near] == [
            ("new", Closeness.BOARD_AND_WORKLOAD),
            ("few", Closeness.BOARD_AND_WORKLOAD),
            ("driver", Closeness.BOARD_AND_WORKLOAD),
            ("board", Closeness.BOARD),
            ("workload", Closeness.WORKLOAD),
            ("kind", Closeness.KIND),
        ]
        assert len(store.posteriors.near(device(), 1)) == 4

    def test_their_worth_is_the_mean_of_the_latest(self, store: Store) -> None:
        stored(store, "s1", "s2")
        board, kind = Closeness.BOARD, Closeness.KIND
        store.posteriors.put(replace(posterior(), worth={board: 0.1}), START)
        later = START + timedelta(hours=1)
        store.posteriors.put(replace(posterior(), worth={board: 0.5, kind: 0.25}), later)
        store.posteriors.put(replace(posterior("s2"), worth={board: 0.75}), START)
        assert store.posteriors.worth() == {board: Worth(0.625, 2), kind: Worth(0.25, 1)}

    def test_they_are_deleted_with_their_study(self, store: Store) -> None:
        stored(store, "s1", "s2")
        digests = [store.posteriors.put(posterior(name), START) for name in ("s1", "s2")]
        store.studies.revise(store.studies.get("s1").moved(Phase.STOPPED), "ann", "", START)
        store.studies.delete("s1")
        refs = [
            SiblingRef(name, digest, Closeness.BOARD)
            for name, digest in zip(("s1", "s2"), digests, strict=True)
        ]
        assert store.posteriors.get(refs) == (None, posterior("s2"))
        assert store.posteriors.worth() == {}
