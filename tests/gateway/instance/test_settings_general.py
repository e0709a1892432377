"""The instance's own settings: names and defaults of the original, and what a bridge may be
called.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.instance import settings_general as general
from gateway.instance.levels import Level
from gateway.instance.memory.budget import State
from gateway.instance.setting_types import Setting, is_of_the_original
from gateway.instance.settings import SettingsError, Severity, read


@pytest.mark.parametrize(
    ("setting", "name", "default"),
    [
        (general.HOSTNAME, "imq.hostname", ""),
        (general.PORTMAPPER_PORT, "imq.portmapper.port", 7676),
        (general.PORTMAPPER_SOTIMEOUT, "imq.portmapper.sotimeout", 500),
        (general.PORTMAPPER_BACKLOG, "imq.portmapper.backlog", 50),
        (general.BRIDGE_ENABLED, "imq.bridge.enabled", False),
        (general.BRIDGE_ACTIVELIST, "imq.bridge.activelist", ()),
        (general.BRIDGE_AUTOSTART, "imq.bridge.NAME.autostart", True),
        (general.BRIDGE_LOGFILE_LIMIT, "imq.bridge.NAME.logfile.limit", 0),
        (general.BRIDGE_LOGFILE_COUNT, "imq.bridge.NAME.logfile.count", 1),
        (general.PASSFILE_ENABLED, "imq.passfile.enabled", False),
    ],
)
def test_names_and_defaults_are_those_of_the_original(
    setting: Setting[Any], name: str, default: object
) -> None:
    values, _ = read(general.SETTINGS, None)
    assert setting.name == name
    assert (values.named(setting, "stomp") if setting.is_named else values[setting]) == default


@pytest.mark.parametrize("setting", general.SETTINGS, ids=lambda setting: setting.name)
def test_each_declaration_is_sound(setting: Setting[Any]) -> None:
    if setting.default != "":  # none
        assert setting.type.parse(setting.type.show(setting.default)) == setting.default
    assert setting.doc.endswith(".")


def test_passwords_are_secret() -> None:
    assert {setting.name for setting in general.SETTINGS if setting.secret} == {
        "imq.keystore.password",
        "imq.bridge.admin.password",
    }


def test_every_level_is_a_level() -> None:
    values, _ = read(
        general.SETTINGS, None, ["imq.bridge.stomp.level=finest", "imq.log.level=ERROR"]
    )
    assert Level[values.named(general.BRIDGE_LEVEL, "stomp")] is Level.FINEST
    assert Level[values[general.LOG_LEVEL]] is Level.SEVERE


def test_the_active_list() -> None:
    values, _ = read(general.SETTINGS, None, ["imq.bridge.activelist= STOMP , links,stomp,"])
    assert values[general.BRIDGE_ACTIVELIST] == ("stomp", "links")


@pytest.mark.parametrize(
    "name", ["admin", "Config", "tm", "JMS", "a.b", "../x", "-a", "a b", "x" * 101, "é"]
)
def test_names_that_no_bridge_can_have(name: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(general.SETTINGS, None, [f"imq.bridge.activelist=stomp,{name}"])
    [problem] = error.value.problems
    assert problem.severity is Severity.ERROR
    assert "reserved admin, config, jms, takeover, tm" in problem.expected


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [("stomp", "", "STOMP"), ("stomp", "stomp", "STOMP"), ("links", "jms", "JMS")],
)
def test_types_of_bridges(name: str, given: str, kind: str) -> None:
    values, _ = read(general.SETTINGS, None, [f"imq.bridge.{name}.type={given}"] if given else [])
    assert general.bridge_type(values, name) == kind


@pytest.mark.parametrize(
    ("name", "given"), [("stomp", "jms"), ("links", "stomp"), ("links", ""), ("links", "mqtt")]
)
def test_a_bridge_of_the_wrong_type_fails_alone(name: str, given: str) -> None:
    values, _ = read(general.SETTINGS, None, [f"imq.bridge.{name}.type={given}"] if given else [])
    with pytest.raises(SettingsError) as error:
        general.bridge_type(values, name)
    [problem] = error.value.problems
    assert problem.severity is Severity.BRIDGE
    assert problem.name == f"imq.bridge.{name}.type"


@pytest.mark.parametrize(
    "name",
    [
        "imq.cluster.url",
        "imq.jms.tcp.port",
        "imq.admin.min_threads",
        "imq.log.file.rolloversecs",
        "imq.persist.file.sync.enabled",
        "imq.persist.jdbc.mysql.user",
        "imq.system.max_count",
        "imq.keystore.file.dirpath",
        "imq.user_repository.ldap.server",
        "imq.instanceconfig.version",
        "imq.broker.adminDefinedRoles.name0",
        "imq.bridge.links.tm.class",
        "java.util.logging.config.file",
        ".level",
    ],
)
def test_names_of_the_original(name: str) -> None:
    assert is_of_the_original(name)


@pytest.mark.parametrize(
    "name",
    [
        "imq.cluster.uri",
        "imq",
        "imq.",
        "imq.jms.",
        "imq.bridge.admin.tm.class",
        "imq.bridge.stomp.x.varhome",
        "foo",
    ],
)
def test_names_of_nobody(name: str) -> None:
    assert not is_of_the_original(name)


_GIB = 1024**3


def test_the_memory_budget_is_a_part_of_the_machine_s_memory() -> None:
    values, _ = read(general.SETTINGS, None)
    assert general.memory_budget(values, 10 * _GIB) == 4 * _GIB
    assert general.memory_warnings(values, 10 * _GIB) == []


def test_a_memory_budget_of_one_s_own() -> None:
    values, _ = read(general.SETTINGS, None, ["imq.memory.budget=2g", "imq.memory.output=10"])
    assert general.memory_budget(values, 10 * _GIB) == 2 * _GIB
    budget = general.make_memory_budget(values, 10 * _GIB, Clock())
    assert budget.limits[State.OUTPUT] == 2 * _GIB // 10
    assert budget.limits[State.RECEIVING] == 2 * _GIB * 3 // 4


def test_a_memory_budget_above_what_may_be_is_lowered_with_a_warning() -> None:
    values, _ = read(general.SETTINGS, None, ["imq.memory.budget=8g"])
    assert general.memory_budget(values, 10 * _GIB) == 6 * _GIB
    [warning] = general.memory_warnings(values, 10 * _GIB)
    assert warning.severity is Severity.WARNING
    assert f"imq.memory.budget=8g: expected at most {6 * _GIB}, 60 %" in str(warning)
