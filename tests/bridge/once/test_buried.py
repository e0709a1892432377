"""Dead messages that are buried are known again until their source has forgotten them, so many at
most.
"""

from __future__ import annotations

from bridge.link.delivery.poison import BURIED, Buried


def test_one_is_known_until_its_source_has_forgotten_it() -> None:
    buried = Buried()
    buried.add("ID:1")
    assert "ID:1" in buried
    buried.discard("ID:1")
    buried.discard("ID:1")
    assert "ID:1" not in buried


def test_one_without_an_id_is_never_known() -> None:
    buried = Buried()
    buried.add("")
    assert "" not in buried


def test_those_that_never_come_again_are_forgotten_the_first_at_first() -> None:
    buried = Buried()
    for number in range(BURIED + 5):
        buried.add(f"ID:{number}")
    assert [number for number in range(BURIED + 5) if f"ID:{number}" not in buried] == [
        0,
        1,
        2,
        3,
        4,
    ]
