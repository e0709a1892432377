"""Tables, character by character."""

from __future__ import annotations

from gateway.admin.cli.tables import broker_table, table


def test_the_broker_table_is_that_of_open_mq() -> None:
    assert broker_table("localhost", 7676) == (
        "-------------------------\nHost         Primary Port\n-------------------------\nlocalhost    7676\n"
    )


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert table(("A", "Long title", "C"), [("wider", 1, ""), ("", "", "x")], 3) == (
        "----------------------\nA       Long title   C\n----------------------\nwider   1\n                     x\n"
    )


def test_centred_with_titles_of_two_lines() -> None:
    assert table((("Pooled", "ConnectionFactory"), "XA"), [("cf", "false")], 3, centred=True) == (
        "-------------------------\n"
        "     Pooled          XA\n"
        "ConnectionFactory\n"
        "-------------------------\n"
        "       cf           false\n"
    )


def test_what_is_not_printable_is_escaped() -> None:
    assert table(("Name",), [("a\x1b[31m\nb",)]).splitlines()[-1] == r"a\x1b[31m\nb"
