"""Reading settings: values, sources, severities, and problems that point at their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.instance.settings import (
    Boolean,
    Integer,
    Octets,
    Port,
    Problem,
    Setting,
    Settings,
    SettingsError,
    Severity,
    Text,
    Words,
    read,
)

ENABLED = Setting("imq.bridge.enabled", Boolean(), False, "Enabled.")
ACTIVE = Setting("imq.bridge.activelist", Words(), (), "Active.")
ADMIN_USER = Setting("imq.bridge.admin.user", Text(), "", "Admin.")
TM_PROPS = Setting("imq.bridge.tm.props", Text(), "", "Of all coordinators.")
NAMED_TM_PROPS = Setting("imq.bridge.NAME.tm.props", Text(), "", "Of one coordinator.")
PORT = Setting("imq.bridge.stomp.tcp.port", Port(), 7672, "Port.")
AUTOSTART = Setting("imq.bridge.NAME.autostart", Boolean(), True, "Autostart.")
MAX_SIZE = Setting("imq.message.max_size", Octets(), 70 * 1024**2, "Size.")
MAX_MESSAGES = Setting("imq.destination.NAME.maxNumMsgs", Integer(-1), -1, "Messages.")
PASSWORD = Setting("imq.keystore.password", Text(verbatim=True), "", "Secret.", secret=True)
PIN = Setting("imq.keystore.pin", Integer(), 0, "Secret.", secret=True)
ALL: list[Setting[Any]] = [
    ENABLED,
    ACTIVE,
    ADMIN_USER,
    TM_PROPS,
    NAMED_TM_PROPS,
    PORT,
    AUTOSTART,
    MAX_SIZE,
    MAX_MESSAGES,
    PASSWORD,
    PIN,
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.properties"


def read_text(file: Path, text: str, *overrides: str) -> tuple[Settings, list[Problem]]:
    file.write_text(text, encoding="utf-8")
    return read(ALL, file, overrides)


def refused(file: Path, text: str, *overrides: str) -> list[Problem]:
    with pytest.raises(SettingsError) as error:
        read_text(file, text, *overrides)
    assert str(error.value).splitlines() == [str(problem) for problem in error.value.problems]
    return error.value.problems


def test_defaults_hold_where_nothing_is_given() -> None:
    values, warnings = read(ALL, None)
    assert (warnings, values[PORT]) == ([], 7672)
    assert values[ENABLED] is False
    assert values.named(AUTOSTART, "x") is True
    assert values.source(PORT) == "default"
    assert not values.is_given(PORT)


def test_the_file_then_the_command_line(file: Path) -> None:
    values, _ = read_text(
        file,
        "# head\nimq.bridge.stomp.tcp.port=1\nimq.message.max_size = 10k\n",
        "imq.bridge.stomp.tcp.port=2",
    )
    assert (values[PORT], values.source(PORT), values[MAX_SIZE]) == (2, "-D", 10240)
    assert values.source(MAX_SIZE) == f"{file}:3"


def test_an_override_keeps_equals_signs_and_escapes_of_its_value() -> None:
    values, _ = read(ALL, None, ["imq.bridge.tm.props=txlogSize=1,txlogSync=\\u0041"])
    assert values[TM_PROPS] == "txlogSize=1,txlogSync=\\u0041"


def test_named_settings(file: Path) -> None:
    values, _ = read_text(
        file,
        "imq.bridge.b.autostart=false\nimq.bridge.a.autostart=true\nimq.destination.my.queue.maxNumMsgs=5\n",
    )
    assert values.names(AUTOSTART) == ["b", "a"]
    assert values.named(AUTOSTART, "b") is False
    assert (values.named(MAX_MESSAGES, "my.queue"), values.names(MAX_MESSAGES)) == (5, ["my.queue"])
    assert values.source(AUTOSTART, "b") == f"{file}:1"
    assert values.is_given(AUTOSTART, "a")
    assert not values.is_given(AUTOSTART, "c")


def test_bridge_names_are_matched_with_the_dot(file: Path) -> None:
    values, _ = read_text(file, "imq.bridge.jms1.autostart=false\nimq.bridge.jms10.autostart=no\n")
    assert values.bridge_problems("jms1") == []
    assert [problem.name for problem in values.bridge_problems("jms10")] == [
        "imq.bridge.jms10.autostart"
    ]
    assert values.named(AUTOSTART, "jms1") is False


@pytest.mark.parametrize("name", ["admin", "tm", "jms", "config", "ADMIN"])
def test_reserved_words_are_no_bridges(file: Path, name: str) -> None:
    [problem] = refused(file, f"imq.bridge.{name}.autostart=true\n")
    assert problem.expected == "a known name"


def test_a_bridge_has_no_dot_in_its_name(file: Path) -> None:
    [problem] = refused(file, "imq.bridge.a.b.autostart=true\n")
    assert problem.nearest == "imq.bridge.a.autostart"


def test_the_more_particular_setting_wins() -> None:
    general = Setting("imq.destination.NAME.limit", Integer(), 0, "Of a destination.")
    particular = Setting("imq.destination.NAME.backup.limit", Integer(), 0, "Of its backup.")
    values, _ = read([general, particular], None, ["imq.destination.q.backup.limit=1"])
    assert (values.names(particular), values.names(general)) == (["q"], [])


def test_a_setting_without_placeholder_wins(file: Path) -> None:
    values, _ = read_text(file, "imq.bridge.tm.props=a=1\nimq.bridge.x.tm.props=b=2\n")
    assert (values[TM_PROPS], values.names(NAMED_TM_PROPS)) == ("a=1", ["x"])


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("imq.bridge.stomp.tpc.port", "imq.bridge.stomp.tcp.port"),
        ("imq.bridge.stomp.TCP.port", "imq.bridge.stomp.tcp.port"),
        ("imq.brigde.enabled", "imq.bridge.enabled"),
        ("imq.bridge.mylink.autostrat", "imq.bridge.mylink.autostart"),
        ("imq.destination.my.queue.maxNumMsg", "imq.destination.my.queue.maxNumMsgs"),
        ("imq.message.maxsize", "imq.message.max_size"),
        ("imq.bridge.stomp.port", "imq.bridge.stomp.tcp.port"),
        ("zzz", ""),
        ("imq.foo", ""),
        ("imq.bridge.mylink.foo", ""),
        ("imq.destination.maxNumMsgs", ""),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_known_one(
    file: Path, wrong: str, nearest: str
) -> None:
    [problem] = refused(file, f"\n{wrong}=7\n")
    assert problem == Problem(file, 2, wrong, "7", "a known name", nearest)
    hint = f"; the nearest known name is {nearest}" if nearest else ""
    assert str(problem) == f"{file}:2: {wrong}=7: expected a known name{hint}"


def test_a_bad_value_is_told_with_its_place(file: Path) -> None:
    [problem] = refused(file, "imq.message.max_size=big\n")
    expected = (
        "a size: a whole number of octets, or one followed by b, k, m or g, or -1 for no limit"
    )
    assert problem == Problem(file, 1, "imq.message.max_size", "big", expected)
    assert str(problem) == f"{file}:1: imq.message.max_size=big: expected {expected}"


def test_a_bad_value_of_the_command_line(file: Path) -> None:
    [problem] = refused(file, "imq.message.max_size=1m\n", "imq.message.max_size=big")
    assert problem.where == "-D"


@pytest.mark.parametrize("override", ["imq.bridge.enabled", "=true", ""])
def test_an_override_without_name_or_equals_sign(file: Path, override: str) -> None:
    [problem] = refused(file, "", override)
    assert problem.expected == "name=value"
    assert "true" not in str(problem)


def test_a_bad_value_of_a_bridge_fails_that_bridge_alone(file: Path) -> None:
    values, warnings = read_text(
        file, "imq.bridge.stomp.tcp.port=x\nimq.bridge.other.autostart=false\n"
    )
    assert warnings == []
    [problem] = values.bridge_problems("stomp")
    assert problem.severity is Severity.BRIDGE
    assert (problem.line, values.bridge_problems("other")) == (1, [])
    assert values.named(AUTOSTART, "other") is False
    with pytest.raises(SettingsError) as error:
        _ = values[PORT]
    assert error.value.problems == [problem]


def test_a_bad_value_of_the_bridge_manager_is_an_error(file: Path) -> None:
    assert [problem.severity for problem in refused(file, "imq.bridge.enabled=ja\n")] == [
        Severity.ERROR
    ]


def test_names_of_the_original_are_warnings(file: Path) -> None:
    _, warnings = read_text(
        file, "imq.cluster.url=x\nimq.jms.tcp.port=7677\n", "java.util.logging.config.file=y"
    )
    assert [(problem.severity, problem.name, problem.line) for problem in warnings] == [
        (Severity.WARNING, "imq.cluster.url", 1),
        (Severity.WARNING, "imq.jms.tcp.port", 2),
        (Severity.WARNING, "java.util.logging.config.file", 0),
    ]


def test_a_name_given_twice_is_a_warning_and_the_later_holds(file: Path) -> None:
    values, [warning] = read_text(
        file, "imq.bridge.stomp.tcp.port=x\n\nimq.bridge.stomp.tcp.port=2\n"
    )
    assert (values[PORT], warning.line, warning.severity) == (2, 3, Severity.WARNING)
    assert "line 1" in warning.expected


def test_all_problems_are_told_at_once_errors_first(file: Path) -> None:
    problems = refused(
        file,
        "imq.cluster.url=x\nimq.bridge.stomp.tcp.port=x\nimq.message.max_size=x\nimq.bad=\\u00\nimq.bridge.enabeld=true\n",
        "imq.bridge.activelits=stomp",
    )
    assert [(problem.severity, problem.line) for problem in problems] == [
        (Severity.ERROR, 4),
        (Severity.ERROR, 3),
        (Severity.ERROR, 5),
        (Severity.ERROR, 0),
        (Severity.BRIDGE, 2),
        (Severity.WARNING, 1),
    ]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(SettingsError) as error:
            read(ALL, path)
        [problem] = error.value.problems
        assert problem.file == path
        assert str(error.value).startswith(f"{path}: expected a readable file: ")


def test_secrets_are_never_shown(file: Path) -> None:
    problems = refused(
        file,
        "imq.keystore.pasword=hunter2\nimq.keystore.pin=hunter2\nimq.user_repository.ldap.password=hunter2\n"
        "imq.keystore.password=hunter2\nimq.keystore.password=hunter2\n",
    )
    assert len(problems) == 4
    assert all(
        "hunter2" not in str(problem) and "hunter2" not in repr(problem) for problem in problems
    )


@pytest.mark.parametrize(
    "name",
    ["pasword", "passwrod", "Password", "passcode", "pwd", "paswd", "pass_word", "user-password"],
)
def test_a_misspelt_password_is_not_shown(file: Path, name: str) -> None:
    [problem] = refused(file, f"imq.new.{name}=hunter2\n")
    assert problem.value == "********"


def test_given_settings_are_listed_with_secrets_hidden(file: Path) -> None:
    values, _ = read_text(file, "imq.keystore.password=hunter2\nimq.bridge.enabled=TRUE\n")
    assert list(values.given()) == [
        ("imq.keystore.password", "********", f"{file}:1"),
        ("imq.bridge.enabled", "TRUE", f"{file}:2"),
    ]
    assert values.secrets() == ["hunter2"]


def test_a_problem_is_one_printable_line(file: Path) -> None:
    [problem] = refused(
        file, "imq.message.max_size=a\\nERROR forged\\u001b[2J\\u202e" + "x" * 500 + "\n"
    )
    assert str(problem).isprintable()
    assert len(str(problem)) < 500


def test_a_problem_that_the_world_shows(file: Path) -> None:
    values, _ = read_text(file, "\nimq.bridge.enabled=TRUE\nimq.keystore.password=hunter2\n")
    problem = values.problem(ENABLED, "a certificate; imqkeytool makes one")
    assert (
        str(problem)
        == f"{file}:2: imq.bridge.enabled=TRUE: expected a certificate; imqkeytool makes one"
    )
    assert values.problem(PORT, "a free port").value == "7672"
    assert values.problem(PASSWORD, "the right one").value == "********"
    assert (
        values.problem(AUTOSTART, "sense", "x", severity=Severity.BRIDGE).name
        == "imq.bridge.x.autostart"
    )


def test_a_problem_with_what_nobody_gave_does_not_name_the_command_line() -> None:
    values, _ = read(ALL, None)
    assert (
        str(values.problem(PORT, "a free port"))
        == "default: imq.bridge.stomp.tcp.port=7672: expected a free port"
    )
    told = "no line imq.keystore.password=...: expected the right one"
    assert str(values.problem(PASSWORD, "the right one")) == f"the settings of the instance: {told}"
    under = values.with_overrides([], source="/etc/passfile", secrets_from="/etc/passfile")
    assert str(under.problem(PASSWORD, "the right one")) == f"/etc/passfile: {told}"
    given = values.with_overrides(
        ["imq.keystore.password=x"], source="/etc/passfile", secrets_from="/etc/passfile"
    )
    assert (
        str(given.problem(PASSWORD, "another"))
        == "/etc/passfile: imq.keystore.password=********: expected another"
    )
    with pytest.raises(SettingsError, match=r"^elsewhere: imq\.message\.max_size=big: expected"):
        values.with_overrides(["imq.message.max_size=big"], source="elsewhere")


def test_overrides_make_new_settings() -> None:
    values, _ = read(ALL, None, ["imq.bridge.stomp.tcp.port=1"])
    changed = values.with_overrides(["imq.bridge.stomp.tcp.port=2"], source="imqcmd")
    assert (values[PORT], changed[PORT], changed.source(PORT)) == (1, 2, "imqcmd")


@pytest.mark.parametrize(
    "override", ["imq.bridge.stomp.tcp.port=x", "imq.message.max_size=x", "imq.nonsense=1"]
)
def test_bad_overrides_are_refused(override: str) -> None:
    values, _ = read(ALL, None)
    with pytest.raises(SettingsError) as error:
        values.with_overrides([override])
    assert len(error.value.problems) == 1


def test_an_override_mends_a_bridge(file: Path) -> None:
    values, _ = read_text(file, "imq.bridge.stomp.tcp.port=x\n")
    mended = values.with_overrides(["imq.bridge.stomp.tcp.port=3"])
    assert (mended.bridge_problems("stomp"), mended[PORT]) == ([], 3)


def test_declared_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"imq\.x is declared twice"):
        read([Setting("imq.x", Text(), "", "One."), Setting("imq.x", Text(), "", "Two.")], None)


def test_a_setting_that_another_covers_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"imq\.bridge\.stomp\.level is declared twice: imq\.bridge\.NAME\.level"
    ):
        read(
            [
                Setting("imq.bridge.stomp.level", Text(), "", "One."),
                Setting("imq.bridge.NAME.level", Text(), "", "All."),
            ],
            None,
        )


def test_a_setting_that_is_not_declared_cannot_be_asked_for() -> None:
    values = read([PORT], None)[0]
    with pytest.raises(KeyError):
        _ = values[ENABLED]
    with pytest.raises(KeyError):
        values.named(AUTOSTART, "x")


def test_a_setting_with_placeholder_needs_a_name() -> None:
    with pytest.raises(KeyError):
        _ = read(ALL, None)[0][AUTOSTART]


@pytest.mark.parametrize(
    ("name", "doc"), [("imq.NAME.x.NAME", "Doc."), ("imq.x", ""), ("imq.x", "a\nb")]
)
def test_bad_declarations_are_refused(name: str, doc: str) -> None:
    with pytest.raises(ValueError, match="setting imq"):
        Setting(name, Text(), "", doc)


@given(st.binary(max_size=120), st.lists(st.text(max_size=20), max_size=2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_no_file_raises_anything_but_ours(
    tmp_path: Path, data: bytes, overrides: list[str]
) -> None:
    file = tmp_path / "any.properties"
    file.write_bytes(b"imq.bridge.stomp.tcp.port=" + data)
    problems: list[Problem] = []
    try:
        _, problems = read(ALL, file, overrides)
    except SettingsError as error:
        problems = error.problems
    assert all(str(problem).isprintable() for problem in problems)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("imq.accesscontrol.enabled", "accesscontrol.properties always hold here"),
        ("imq.jms.accesscontrol.enabled", "accesscontrol.properties always hold here"),
        (
            "imq.authentication.type",
            "every client is asked for the name and passcode of a user in etc/users",
        ),
        ("imq.authentication.digest.user_repository", "imq.authentication.basic.user_repository"),
        ("imq.accesscontrol.file.filename", "the instance's etc/accesscontrol.properties"),
        ("imq.cluster.url", "has no effect in this gateway"),
    ],
)
def test_what_somebody_might_rely_on_is_told_in_a_sentence_of_its_own(
    file: Path, name: str, words: str
) -> None:
    _, [problem] = read_text(file, f"{name}=false\n")
    assert problem.severity is Severity.WARNING
    assert str(problem).startswith(f"{file}:1: {name}=false: has no effect in this gateway")
    assert words in str(problem)


def test_a_secret_on_the_command_line_is_warned_of_and_not_repeated(file: Path) -> None:
    settings, [problem] = read_text(file, "", "imq.keystore.password=hunter2")
    assert settings[PASSWORD] == "hunter2"
    assert problem.severity is Severity.WARNING
    assert str(problem).startswith(
        "-D: imq.keystore.password=********: expected a line of the passfile"
    )
    assert read_text(file, "imq.keystore.password=hunter2\n")[1] == []


def test_what_brokers_of_a_cluster_have_in_common(file: Path) -> None:
    common = Setting("imq.cluster.common", Boolean(), True, "The same everywhere.", shared=True)
    named = Setting("imq.bridge.NAME.common", Integer(), 3, "The same everywhere.", shared=True)
    file.write_text(
        "imq.bridge.a.common=4\nimq.bridge.b.common=3\nimq.bridge.a.autostart=false\n"
        "imq.cluster.common=TRUE\n"
    )
    values, _ = read([*ALL, common, named], file)
    assert values.shared() == {"imq.cluster.common": "true", "imq.bridge.a.common": "4"}
    values, _ = read([*ALL, common, named], None)
    assert values.shared() == {"imq.cluster.common": "true"}
