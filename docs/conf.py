"""Sphinx's settings, and pages made from the code.

These are the settings, the STOMP state table and the figures of the front page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docutils import nodes

import gateway

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "stomp-gateway"
author = "The stomp-gateway authors"
copyright = "The stomp-gateway authors"
version = release = gateway.__version__

#: What the tests have measured is a part of a page, and none itself.
CRASH_MATRIX = "exactly_once_matrix.rst"
exclude_patterns = ["_build", CRASH_MATRIX]
html_theme = "furo"
html_title = f"stomp-gateway {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
#: Most blocks are typed into a terminal, or are lines of settings.
highlight_language = "none"


def settings_page() -> str:
    from settings_reference import Section, page

    from bridge.config import settings as bridge
    from bridge.providers.jms import java_command as jms
    from gateway.admin.service import settings as admin
    from gateway.broker.properties import jdbc, repositories
    from gateway.broker.properties import settings as broker
    from gateway.configuration import DECLARED
    from gateway.front import settings as front
    from gateway.instance import settings_general as general
    from gateway.journal import journal
    from gateway.stomp import settings as stomp
    from gateway.tracing import settings as tracing

    introduction = (
        "Settings stand in ``etc/gateway.properties`` of the instance, ``name=value`` a line, or are given to the command by "
        "``-Dname=value``, which wins. An unknown name is an error; the nearest known one is named where one comes near. A setting of Open MQ "
        "that is not here is a warning. Passwords belong in the passfile."
    )
    sections = [
        Section("The instance", "", general.SETTINGS),
        Section("The broker", "``NAME`` stands for the name of a destination.", broker.SETTINGS),
        Section(
            "The broker in a database",
            "They have an effect with ``imq.persist.store=jdbc``.",
            jdbc.SETTINGS,
        ),
        Section("Who knows the users", ":doc:`/users` says more.", repositories.SETTINGS),
        Section("The journal", ":doc:`/journal` says what it is.", journal.SETTINGS),
        Section("Traces", ":doc:`/tracing` says more.", tracing.SETTINGS),
        Section(
            "The admin service", "It is what ``imqbridgemgr`` and ``imqcmd`` ask.", admin.SETTINGS
        ),
        Section("The STOMP bridge", "", stomp.SETTINGS),
        Section(
            "Other brokers behind the STOMP bridge",
            "``NAME`` stands for the ``ref-name`` of a connection factory. :doc:`/front` says more.",
            front.SETTINGS,
        ),
        Section(
            "JMS bridges",
            "``NAME`` stands for the name of a bridge; in ``imq.bridge.config.password.NAME`` for what the XML configuration names as "
            ":ref:`${passfile:NAME} <passwords-in-xml>`.",
            bridge.SETTINGS,
        ),
        Section(
            "The Java virtual machine",
            "It is started when the first JMS provider is connected to, one for the whole process.",
            jms.SETTINGS,
        ),
    ]
    missing = {setting.name for setting in DECLARED} - {
        setting.name for section in sections for setting in section.settings
    }
    if missing:
        raise ValueError(f"settings that are on no page: {', '.join(sorted(missing))}")
    return page("Settings", introduction, sections)


def states_page() -> str:
    """Return rows (state, command) -> state of the session's own mapping."""
    from gateway.stomp.session.states import TRANSITIONS, Command

    table: Mapping[Any, Mapping[Any, Any]] = TRANSITIONS
    states = [state for state in table if table[state]]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [["Command", *(state.value for state in states)]] + [
        [
            f"``{command.value}``",
            *(
                table[state][command].value if command in table[state] else "ERROR"
                for state in states
            ),
        ]
        for command in Command
    ]:
        lines += [f"   {'*' if index == 0 else ' '} - {cell}" for index, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


#: The rows of README's table of figures that the front page has, with what it calls them.
FRONT_FIGURES = {
    "queue, 100 B, non-persistent, 1→1, ack auto, varying headers": "Queue, not persistent",
    "queue, 100 B, persistent, a receipt each, 1→1, ack auto, varying headers": "Queue, each on the disk and confirmed before the next",
    "queue, 100 B, persistent, a receipt each, 10→1, ack auto, varying headers": "The same with ten senders",
    "topic, 100 B, non-persistent, 1→10, ack auto, varying headers": "Topic with ten subscribers, deliveries",
    "link, to ActiveMQ by JMS, 1 KiB, persistent, by default": "Link to ActiveMQ by JMS; theirs: bridge, shovel",
}


def front_figures() -> str:
    """Return rows of the first table of figures in README."""
    text = (HERE.parent / "README.rst").read_text().split(".. figures begin")[1]
    _, head, _, *rows = text.split("\n\n")[2].splitlines()
    by_name = {row[0]: row for row in (re.split(r"  +", line) for line in rows)}
    shown = [
        ["Messages a second", *re.split(r"  +", head)[1:4]],
        *([called, *by_name[name][1:4]] for name, called in FRONT_FIGURES.items()),
    ]
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 58 14 14 14", ""]
    for row in shown:
        lines += [f"   {'*' if index == 0 else ' '} - {cell}" for index, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def crash_matrix() -> str:
    """The crash matrix as it was measured last."""
    measured = HERE / CRASH_MATRIX
    if measured.exists():
        return measured.read_text()
    return "The table is written by ``pytest tests/crash/test_once*.py --crash-matrix=docs/exactly_once_matrix.rst``.\n"


def generate(app: Any) -> None:
    """Write only what has changed, so that Sphinx does not read the rest."""
    folder = HERE / "generated"
    folder.mkdir(exist_ok=True)
    for name, make in (
        ("settings.rst", settings_page),
        ("states.txt", states_page),
        ("front_figures.txt", front_figures),
        ("crash_matrix.txt", crash_matrix),
    ):
        text = make()
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def contents_once(app: Any, doctree: nodes.document, page: str) -> None:
    """Leave out a page's own contents, which the theme shows beside it."""
    for topic in [*doctree.findall(nodes.topic)]:
        if "contents" in topic["classes"]:
            topic.parent.remove(topic)


def setup(app: Any) -> None:
    app.connect("builder-inited", generate)
    app.connect("doctree-resolved", contents_once)
