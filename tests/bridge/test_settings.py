"""The settings of JMS bridges, beside the general ones and in the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.settings import CONFIG_REMOTE, JMS_CLASSPATH, PASSWORD, SETTINGS, XML, XMLURL
from docs.settings_reference import Section, page
from gateway.configuration import DECLARED
from gateway.instance import passfile, settings_general
from gateway.instance.setting_types import Catalogue
from gateway.instance.settings import Settings, read

# Those that the composition root declares already come from it.
ALL = [*(setting for setting in DECLARED if setting not in SETTINGS), *SETTINGS]


def settings(*overrides: str) -> Settings:
    return read(ALL, None, overrides)[0]


def test_defaults() -> None:
    nothing = settings()
    assert (nothing.named(XMLURL, "mq"), nothing.named(XML, "mq")) == ("", "")
    assert nothing[CONFIG_REMOTE] is False
    assert (nothing[JMS_CLASSPATH], nothing.names(PASSWORD)) == ("", [])


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("imq.bridge.mq.xmlurl", XMLURL),
        ("imq.bridge.mq.xml", XML),
        ("imq.bridge.config.remote", CONFIG_REMOTE),
        ("imq.bridge.config.password.there.main", PASSWORD),
        ("imq.jms.classpath", JMS_CLASSPATH),
    ],
)
def test_names(name: str, setting: object) -> None:
    found = Catalogue(ALL).find(name)
    assert found is not None
    assert found[0] is setting


def test_passwords_come_from_the_passfile_and_are_hidden(tmp_path: Path) -> None:
    file = tmp_path / "passfile"
    passfile.update(file, {"imq.bridge.config.password.there": " s3cret "})
    found = passfile.applied(settings(), file)
    assert (found.named(PASSWORD, "there"), found.secrets()) == (" s3cret ", [" s3cret "])
    assert passfile.unknown(found, file) == []


def test_the_reference() -> None:
    source = page(
        "Settings",
        "",
        [
            Section("The instance", "", settings_general.SETTINGS),
            Section("JMS bridges", "", SETTINGS),
        ],
    )
    assert all(f"``{setting.name}``" in source for setting in SETTINGS)
