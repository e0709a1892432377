"""What pages for administrators have them type is what there is.

Their settings are read, their access rules loaded, and their commands run on a gateway, in the
order in which the pages have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from certs import command as imqkeytool
from gateway import dbmgr
from gateway.admin.cli import imqcmd
from gateway.broker.security import usermgr
from gateway.broker.security.access import AccessRules
from gateway.configuration import DECLARED, read_settings
from gateway.instance.layout import Layout
from tests.gateway_process import HOST, INSTANCE, GatewayProcess

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGES: Final = (
    "from_activemq",
    "from_artemis",
    "from_rabbitmq",
    "installation",
    "production",
)
PASSFILE: Final = "imq.imqusermgr.password=secret\n"


def typed(page: str) -> Iterator[str]:
    """What a page shows between two backticks, and in blocks of lines."""
    text = (DOCS / f"{page}.rst").read_text()
    # In a table and in a block of lines the order is that of the page.
    for match in re.finditer(r"``([^`]+)``|^ {4,}(?![-*] |``)(\S[^`\n]*)$", text, re.MULTILINE):
        yield from re.split(r" (?=-D)", re.sub(r"\s+", " ", match[1] or match[2]))


def settings_of(page: str) -> list[str]:
    found = (re.sub(r"^-D", "", text) for text in typed(page))
    return [text for text in found if re.match(r"imq\.[\w.]+=\S", text) and "password" not in text]


def test_no_service_is_given_the_port_of_another() -> None:
    """The console lost its port to the health service once."""
    usual = {
        each.default: each.name
        for each in DECLARED
        if each.name.endswith("port") and isinstance(each.default, int) and each.default
    }
    assert usual[7677] == "imq.bridge.admin.port"
    folders = (DOCS, DOCS.parent / "packaging")
    pages = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    given = [
        (file.name, setting, int(port))
        for file in (*pages, DOCS.parent / "README.rst")
        if file.suffix not in (".png", ".pyc")
        for setting, port in re.findall(r"(imq[\w.]*port)=(\d+)", file.read_text())
    ]
    assert len(given) > 10
    assert [each for each in given if usual.get(each[2], each[1]) != each[1]] == []


def test_what_a_page_calls_the_default_is_the_default() -> None:
    """Operators who move rely on it."""
    defaults = {
        each.name.rpartition(".")[2]: str(each.default)
        for each in DECLARED
        if each.name.startswith("imq.autocreate.destination.")
    }
    pages = {page.name: page.read_text() for page in DOCS.glob("*.rst")}
    called = {
        (name, *match)
        for name, text in pages.items()
        for match in re.findall(
            r"``[^`]*?\b(\w+)=(\w+)``, the default|[Bb]y default, ``(\w+)=(\w+)``", text
        )
    }
    named = {(page, a or c, b or d) for page, a, b, c, d in called if (a or c) in defaults}
    assert ("from_activemq.rst", "limitBehavior", "REJECT_NEWEST") in named
    assert [each for each in named if defaults[each[1]] != each[2]] == []


def rules_of(page: str) -> list[str]:
    return [text for text in typed(page) if re.match(r"(queue|topic|connection)\.\S+=\S+$", text)]


@pytest.mark.parametrize("page", PAGES)
def test_settings_are_known(page: str, tmp_path: Path) -> None:
    layout = Layout(tmp_path, "one")
    layout.create()
    found = settings_of(page)
    layout.settings.write_text("".join(f"{line}\n" for line in dict.fromkeys(found)))
    assert found
    _, *rest = read_settings(layout, [])
    assert [each for each in rest if each and "no effect" in str(each)] == []


@pytest.mark.parametrize("page", PAGES[:3])
def test_rules_are_rules(page: str, tmp_path: Path) -> None:
    file = tmp_path / "accesscontrol.properties"
    found = rules_of(page)
    assert found
    version = "version=JMQFileAccessControlModel/100\n"
    file.write_text(
        version + "connection.NORMAL.allow.user=*\n" + "".join(f"{line}\n" for line in found)
    )
    AccessRules(file).load()


class Operator:
    """Types the commands of a page."""

    def __init__(self, gateway: GatewayProcess, folder: Path) -> None:
        self._instance = ["-varhome", str(gateway.varhome), "-i", INSTANCE]
        self._folder = folder
        self._passfile = folder / "passfile"
        self._passfile.touch(0o600)
        self._passfile.write_text(PASSFILE)
        self._broker = [
            *("-b", f"{HOST}:{gateway.port_mapper_port}", "-u", "admin", "-f"),
            *("-passfile", str(gateway.directory / "etc" / "passfile")),
        ]

    def types(self, line: str) -> int:
        """Run a command. :returns: its exit code."""
        program, *words = line.split()
        if program == "imqcmd":
            return imqcmd.run([*words, *self._broker])
        if program == "imqdbmgr":
            words = [word.replace("/backup", str(self._folder)) for word in words]
            return dbmgr.run([*_without(words, "--varhome", "-varhome"), *self._instance])
        if program == "imqusermgr":
            more = ["-passfile", str(self._passfile)] if words[0] in ("add", "update") else []
            words = _without(words, "-passfile", "-varhome")
            return usermgr.run([*words, *more, *self._instance])
        words = _without(words, "--varhome")
        return imqkeytool.run([*words, "--varhome", self._instance[1], "-i", INSTANCE])


def _without(words: list[str], *options: str) -> list[str]:
    """Words without these options and their values."""
    kept, skip = [], False
    for word in words:
        if not skip and word not in options:
            kept.append(word)
        skip = not skip and word in options
    return kept


@pytest.mark.parametrize("page", PAGES)
def test_commands_do_what_they_say(
    page: str,
    start_gateway: Callable[..., GatewayProcess],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    operator = Operator(start_gateway(), tmp_path)
    commands = [
        text
        for text in typed(page)
        if re.match(r"(imqcmd|imqusermgr|imqkeytool|imqdbmgr) [a-z]", text)
        and not text.startswith("imqdbmgr restore")
    ]
    assert commands
    done = [(line, operator.types(line), capsys.readouterr().err) for line in commands]
    assert [each for each in done if each[1] != 0] == []
