"""After the kill of a writing process all its confirmed trials are stored, and no trial in part."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from db import Store, open_store
from tests.builders import START, completed, setting, study
from tests.contracts.stored import trial_states
from tuner.core import Phase, Report, Trial, TrialState

ROOT = Path(__file__).parents[2]
END = START + timedelta(seconds=10)


def write(url: str) -> None:
    """Run trials until killed; print the number of each trial once it is stored."""
    store = open_store(url)
    while True:
        trial = store.trials.begin("s1", setting(), Phase.TUNING, "", START)
        lease = store.leases.grant("sim", "s1", trial, "host", END)
        store.trials.report(
            Report(
                study="s1",
                trial=trial.number,
                device="sim",
                attempt=1,
                token=lease.token,
                nonce=lease.nonce,
                outcome=completed(trial.number),
                received_at=END,
            )
        )
        store.trials.end("s1", trial.number, completed(trial.number), END)
        sys.stdout.write(f"{trial.number}\n")
        sys.stdout.flush()


def killed_after(url: str, trials: int) -> int:
    """Start a writer, kill it after some trials, and return the last number it printed after these."""
    code = f"from tests.contracts.killed_writer import write; write({url!r})"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(trials):
            assert writer.stdout.readline(), "the writer ended by itself"
        writer.kill()
        printed = writer.stdout.read().split("\n")[:-1]
    return int(printed[-1]) if printed else 0


class KilledWriterContract:
    """Needs the fixture `url`: the URL of the database of the fixture `store`."""

    def test_no_trial_is_lost_or_half_there(self, store: Store, url: str) -> None:
        store.studies.add(study(), "ann", "")
        for trials in (3, 11):
            before = len(store.trials.list("s1"))
            sure_of = max(before + trials, killed_after(url, trials))
            kept = store.trials.list("s1")
            assert [t.number for t in kept] == list(range(1, len(kept) + 1))
            assert all(t.state is TrialState.COMPLETED for t in kept[before:sure_of])
            assert len(kept) - sure_of in (0, 1)  # at most one in progress
            for trial in kept:
                self._check_whole(store, trial)
        assert store.trials.begin("s1", setting(), Phase.TUNING, "", START).number == len(kept) + 1

    @staticmethod
    def _check_whole(store: Store, trial: Trial) -> None:
        states = [state for state, _, _ in trial_states(store, "s1", trial.number)]
        if trial.state is TrialState.RUNNING:
            assert (trial.measurement, trial.ended_at, states) == (None, None, [TrialState.RUNNING])
        else:
            assert trial.measurement == completed(trial.number).measurement
            assert states == [TrialState.RUNNING, TrialState.COMPLETED]
        for report in store.trials.reports("s1", trial.number):
            assert report.outcome == completed(trial.number)
