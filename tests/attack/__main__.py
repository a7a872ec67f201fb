"""Run all or the named attacks: `python -m tests.attack --output FILE [NAME …]`.

Writes one JSON document of the passed checks, with counts, and the failed ones. All traffic stays on
loopback; each attack has a fixed number of requests.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.attack import agents, budgets, door, limits, pooled
from tests.attack.site import Scenario, Site, opened

ATTACKS: tuple[Callable[[Site, Scenario], None], ...] = (
    door.login_flood,
    door.form_bombs,
    door.foreign_origins,
    door.wrong_tokens,
    door.unable_without_end,
    door.event_streams,
    agents.invented_joules,
    agents.bombs_for_an_agent,
    agents.dead_journal,
    budgets.clock_set_back,
    budgets.endless_events,
    budgets.invented_members,
    limits.hostile_watts,
    limits.fleet_file_bombs,
    limits.series_bombs,
    limits.megabytes_before_llama,
    limits.named_database,
    limits.odd_surroundings,
    pooled.pooled_transactions,
)


def main() -> int:
    """Return 0 if all checks passed."""
    names = [attack.__name__ for attack in ATTACKS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", choices=[*names, []], default=[])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found: list[Scenario] = []
    for attack in ATTACKS:
        if arguments.attacks and attack.__name__ not in arguments.attacks:
            continue
        told = Scenario(attack.__name__)
        began = time.monotonic()
        # Each attack has its own tuner: wrong tokens of one must not count in another.
        with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as site:
            try:
                attack(site, told)
            except Exception:  # noqa: BLE001  the other attacks are to be made all the same
                told.broken.append(f"the attack itself failed: {traceback.format_exc()[-600:]}")
        told.counts["seconds"] = round(time.monotonic() - began, 1)
        found.append(told)
        word = "held" if not told.broken else "did not hold"
        sys.stderr.write(f"{told.name}: {word} {json.dumps(told.counts, default=str)}\n")
        for what in told.broken:
            sys.stderr.write(f"  {what}\n")
    document = {
        "held": {told.name: told.counts for told in found if not told.broken},
        "did_not_hold": {
            told.name: {"what": told.broken, "counts": told.counts} for told in found if told.broken
        },
    }
    text = json.dumps(document, indent=2, default=str) + "\n"
    if arguments.output is not None:
        arguments.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 1 if document["did_not_hold"] else 0


if __name__ == "__main__":
    sys.exit(main())
