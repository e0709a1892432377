"""The tested rows of the table of ``docs/profiles.rst``, and their cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.client import Client, Closed, Frame
from tests.conformance.profiles.conftest import PROFILES

#: The rows that have a test: the cells by profile.
ROWS: dict[str, dict[str, str]] = {}

Check = Callable[..., None]


def row(title: str, **cells: str) -> Callable[[Check], Any]:
    """A test for a row of the table, for each of its cells.

    :param cells: by profile; ``others`` stands for those that are not named.
    """
    filled = {profile: cells.get(profile, cells.get("others", "")) for profile in PROFILES}
    ROWS[title] = filled
    return pytest.mark.parametrize(("profile", "cell"), list(filled.items()))


def answer(client: Client) -> Frame:
    """The next frame that is no MESSAGE."""
    while (frame := client.frame()).command == "MESSAGE":
        pass
    return frame


def is_closed(client: Client) -> bool:
    """Whether the gateway has closed the connection, rather than go on."""
    try:
        client.ask("SEND", {"destination": "/topic/unheard"})
    except (Closed, BrokenPipeError, ConnectionResetError):
        return True
    return False
