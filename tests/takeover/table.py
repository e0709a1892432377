"""The times of takeovers as a table, for the terminal at the end of a run.

Owns its form. The rows come from tests by :data:`PROPERTY`, through which they come from other
processes, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

#: The name under which a test records a row.
PROPERTY: Final = "takeover"


def recorded(what: str, seconds: float, found: int) -> dict[str, Any]:
    """A row.

    :param what: happened to the owner.
    :param seconds: from then until another process served.
    :param found: messages that the new owner had, all of which were accounted for.
    """
    return {"what": what, "seconds": seconds, "found": found}


def lines(reports: Iterable[Any]) -> list[str]:
    """One line for each kind of takeover in these reports, with its times."""
    kinds: dict[str, list[tuple[float, int]]] = {}
    for report in reports:
        for name, row in report.user_properties:
            if name == PROPERTY:
                kinds.setdefault(row["what"], []).append((row["seconds"], row["found"]))
    made = [
        f"{'the owner':<40} {'times':>6} {'s least':>8} {'median':>8} {'most':>8} {'messages':>9}"
    ]
    for what, rows in sorted(kinds.items()):
        times = sorted(seconds for seconds, _ in rows)
        made.append(
            f"{what:<40} {len(rows):>6} {times[0]:>8.2f} {times[len(times) // 2]:>8.2f} {times[-1]:>8.2f}"
            f" {sum(found for _, found in rows):>9}"
        )
    return made if kinds else []
