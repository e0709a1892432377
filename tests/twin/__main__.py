"""The twin run: ``python -m tests.twin OLD_TREE [NEW_TREE]``.

A tree is a checkout or an unpacked wheel, pure or compiled; the new one is this checkout unless it
is named. Exits with 1 and the shortest script that shows it when the trees do not do the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.twin.pair import ALLOWANCES, Different, Pair, compare


def main() -> int:
    """Compare the trees of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.twin", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=Path(__file__).parents[2])
    parser.add_argument("--examples", type=int, default=1_000, help="scripts to play")
    parser.add_argument("--operations", type=int, default=30, help="at most in one script")
    parser.add_argument("--seed", type=int, default=0, help="of what is generated")
    parser.add_argument(
        "--without",
        action="append",
        choices=("full", "failed", "envelopes"),
        default=[],
        help="answers that the disk does not give, and subscriptions with envelopes",
    )
    parser.add_argument(
        "--allow",
        action="append",
        choices=[*ALLOWANCES],
        default=[],
        help="; ".join(f"{name}: {each.reason}" for name, each in ALLOWANCES.items()),
    )
    given = parser.parse_args()
    begun = time.monotonic()
    with Pair(given.old, given.new, given.allow) as pair:
        try:
            compare(pair, given.examples, given.seed, given.operations, frozenset(given.without))
        except Different as different:
            print(different)
            return 1
        finally:
            print(f"{pair.tally}; {time.monotonic() - begun:.0f} seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
