"""The reference page is made from the declarations, and is reStructuredText that docutils reads
without a word of complaint.
"""

from __future__ import annotations

from typing import Any

import docutils.core
import docutils.nodes
import pytest

from docs.settings_reference import Section, page
from gateway.instance import settings_general as general
from gateway.instance.settings import Choice, Duration, Octets, Setting, Text


def tree(source: str) -> docutils.nodes.document:
    # halt_level 1: even an "info" raises.
    return docutils.core.publish_doctree(
        source, settings_overrides={"halt_level": 1, "report_level": 1}
    )


def cells(source: str) -> list[list[str]]:
    return [
        [entry.astext() for entry in row.findall(docutils.nodes.entry)]
        for row in tree(source).findall(docutils.nodes.row)
    ]


def test_the_general_settings() -> None:
    source = page(
        "Settings", "All of them.", [Section("Instance", "Of the *instance*.", general.SETTINGS)]
    )
    rows = cells(source)
    assert rows[0] == ["Name", "Type", "Default", "Unit", "Meaning"]
    assert [row[0] for row in rows[1:]] == [setting.name for setting in general.SETTINGS]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["imq.portmapper.port"] == ["Integer", "7676", "", "Port of the port mapper."]
    assert by_name["imq.hostname"][1] == "none"
    assert by_name["imq.portmapper.sotimeout"][:3] == ["Integer", "500", "milliseconds"]
    assert by_name["imq.bridge.NAME.level"][3].endswith(
        "FINEST, ALL, OFF. A change takes effect when SIGHUP has the file read again."
    )


def test_a_row() -> None:
    settings: list[Setting[Any]] = [
        Setting("imq.a", Octets(), 10 * 1024, "Uses *stars*, `ticks`, under_ and |bars| \\."),
        Setting("imq.b", Duration("seconds"), 0, "Zero."),
        Setting("imq.c", Choice("A", "B"), "A", "Letters."),
        Setting("imq.d", Text(), "x y", "Text.", unit="things", reloadable=True),
    ]
    assert cells(page("Title", "", [Section("Part", "", settings)]))[1:] == [
        ["imq.a", "Size", "10k", "octets", "Uses *stars*, `ticks`, under_ and |bars| \\."],
        ["imq.b", "Integer", "0", "seconds", "Zero."],
        ["imq.c", "Choice", "A", "", "Letters. One of A, B."],
        [
            "imq.d",
            "String",
            "x y",
            "things",
            "Text. A change takes effect when SIGHUP has the file read again.",
        ],
    ]


def test_headings_nest() -> None:
    document = tree(
        page(
            "Title",
            "Text.",
            [Section("One", "", general.SETTINGS[:1]), Section("Two", "", general.SETTINGS[1:2])],
        )
    )
    assert [title.astext() for title in document.findall(docutils.nodes.title)] == [
        "Title",
        "One",
        "Two",
    ]


def test_a_setting_has_one_place() -> None:
    with pytest.raises(ValueError, match=r"imq\.hostname is twice"):
        page(
            "Title",
            "",
            [Section("One", "", [general.HOSTNAME]), Section("Two", "", [general.HOSTNAME])],
        )
