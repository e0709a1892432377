"""The logs of an instance: lines, levels at run time, and which event goes where."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.python.failure import Failure

from gateway.instance import settings_general as general
from gateway.instance.layout import Layout
from gateway.instance.levels import LEVELS, Level, level_of
from gateway.instance.log_lines import line_of
from gateway.instance.logs import Logs, open_bridge_log, open_logs, set_levels
from gateway.instance.redaction import Redaction
from gateway.instance.settings import SettingsError, read


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, "broker")


@pytest.fixture
def publisher() -> LogPublisher:
    return LogPublisher()


@pytest.fixture
def logs(layout: Layout, publisher: LogPublisher) -> Iterator[Logs]:
    logs = Logs(layout, Redaction())
    logs.start(publisher)
    yield logs
    logs.stop(publisher)


def lines(path: Path) -> list[str]:
    return [line.split(" ", 1)[1] for line in path.read_text().splitlines()]


def event(format: str = "text", level: LogLevel = LogLevel.info, **fields: Any) -> dict[str, Any]:
    return {
        "log_format": format,
        "log_level": level,
        "log_namespace": "n",
        "log_time": 1769860800.25,
        **fields,
    }


def test_a_line() -> None:
    line = line_of(event("hello {who}", who="world"), Level.INFO, Redaction())
    assert line == "2026-01-31T12:00:00.250Z INFO [n] hello world"


@pytest.mark.parametrize(
    "hostile", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\x00b", "a\u2028b", "a\u202eb", "\ud83d"]
)
def test_what_a_peer_sends_cannot_forge_a_line(hostile: str) -> None:
    line = line_of(
        event("got {value}", value=hostile, log_namespace=hostile), Level.INFO, Redaction()
    )
    assert line.isprintable()


def test_braces_in_values_are_no_formats() -> None:
    assert line_of(
        event("got {value}", value="{value.__class__}"), Level.INFO, Redaction()
    ).endswith("got {value.__class__}")


def test_a_long_text_is_cut() -> None:
    line = line_of(event("{value}", value="x" * 1_000_000), Level.INFO, Redaction())
    assert len(line) < 20_000
    assert line.endswith(" more characters)")


def test_a_failure_is_one_line_with_its_traceback() -> None:
    try:
        raise ValueError("why\nnot")
    except ValueError:
        line = line_of(
            event(level=LogLevel.critical, log_failure=Failure()),  # type: ignore[no-untyped-call]
            Level.SEVERE,
            Redaction(),
        )
    assert line.isprintable()
    assert "Traceback" in line
    assert "ValueError: why\\nnot" in line


@given(
    st.dictionaries(
        st.text(max_size=10), st.one_of(st.text(), st.binary(), st.integers(), st.none())
    ),
    st.text(),
)
def test_any_event_is_one_line(fields: dict[str, Any], format: str) -> None:
    line = line_of({**fields, "log_format": format, "log_time": 0.0}, Level.INFO, Redaction())
    assert line.isprintable()


def test_an_event_of_many_lines_is_many_lines_none_of_which_can_forge_another(
    logs: Logs, layout: Layout
) -> None:
    logs.redaction.add("hunter2")
    log = logs.open_bridge("stomp")
    log.logger.info("{lines}", lines=["one", "t\nwo", "three hunter2", "x" * 20_000])
    found = lines(layout.bridge("stomp") / "stomp0.log")
    assert [line.split("] ", 1)[1][:12] for line in found] == [
        "one",
        "t\\nwo",
        "three ******",
        "x" * 12,
    ]
    assert len({line.split("] ", 1)[0] for line in found}) == 1
    assert len(found[3]) < 17_000


def test_the_lines_of_an_event_that_is_not_written_are_not_made(logs: Logs) -> None:
    def made() -> Iterator[str]:
        raise AssertionError("they were made")
        yield ""

    logs.open_bridge("stomp").logger.debug("{lines}", lines=made())


def test_the_levels_are_those_of_java() -> None:
    assert LEVELS == (
        "SEVERE",
        "WARNING",
        "INFO",
        "CONFIG",
        "FINE",
        "FINER",
        "FINEST",
        "ALL",
        "OFF",
    )
    assert (
        Level.OFF
        > Level.SEVERE
        > Level.WARNING
        > Level.INFO
        > Level.CONFIG
        > Level.FINE
        > Level.FINER
        > Level.FINEST
        > Level.ALL
    )


@pytest.mark.parametrize(
    ("twisted", "level"),
    [
        (LogLevel.debug, Level.FINE),
        (LogLevel.info, Level.INFO),
        (LogLevel.warn, Level.WARNING),
        (LogLevel.error, Level.SEVERE),
        (LogLevel.critical, Level.SEVERE),
    ],
)
def test_levels_of_twisted(twisted: LogLevel, level: Level) -> None:
    assert level_of({"log_level": twisted}) is level
    assert level_of({"log_level": twisted, "detail": Level.CONFIG}) is Level.CONFIG
    assert level_of({"log_level": twisted, "detail": "somebody's own"}) is level


def test_an_event_without_level_is_info() -> None:
    assert level_of({}) is Level.INFO


@pytest.mark.parametrize(
    ("level", "written"),
    [
        (Level.ALL, ["SEVERE", "WARNING", "INFO", "CONFIG", "FINE", "FINER", "FINEST"]),
        (Level.FINEST, ["SEVERE", "WARNING", "INFO", "CONFIG", "FINE", "FINER", "FINEST"]),
        (Level.FINER, ["SEVERE", "WARNING", "INFO", "CONFIG", "FINE", "FINER"]),
        (Level.FINE, ["SEVERE", "WARNING", "INFO", "CONFIG", "FINE"]),
        (Level.CONFIG, ["SEVERE", "WARNING", "INFO", "CONFIG"]),
        (Level.INFO, ["SEVERE", "WARNING", "INFO"]),
        (Level.WARNING, ["SEVERE", "WARNING"]),
        (Level.SEVERE, ["SEVERE"]),
        (Level.OFF, []),
    ],
)
def test_a_level_takes_itself_and_what_is_above(
    logs: Logs, layout: Layout, level: Level, written: list[str]
) -> None:
    log = logs.open_bridge("stomp", Level.OFF)
    log.set_level(level)
    log.logger.error("x")
    log.logger.warn("x")
    log.logger.info("x")
    log.logger.debug("x", detail=Level.CONFIG)
    log.logger.debug("x")
    log.logger.debug("x", detail=Level.FINER)
    log.logger.debug("x", detail=Level.FINEST)
    assert [line.split()[0] for line in lines(layout.bridge("stomp") / "stomp0.log")] == written
    assert log.fine is ("FINE" in written)


def test_each_event_goes_to_its_log(logs: Logs, layout: Layout, publisher: LogPublisher) -> None:
    logs.open_bridge("stomp", namespaces=["gateway.stomp"])
    logs.open_bridge("links")
    for namespace in (
        "gateway.broker",
        "gateway.stomp",
        "gateway.stomp.session.x",
        "gateway.stomper",
    ):
        Logger(namespace=namespace, observer=publisher).info("a")
    Logger(namespace="bridge.link", observer=publisher).info("b", bridge="links")
    Logger(namespace="bridge.link", observer=publisher).info("c", bridge="unknown")
    assert lines(layout.log / "log.txt") == [
        "INFO [gateway.broker] a",
        "INFO [gateway.stomper] a",
        "INFO [bridge.link] c",
    ]
    assert lines(layout.bridge("stomp") / "stomp0.log") == [
        "INFO [gateway.stomp] a",
        "INFO [gateway.stomp.session.x] a",
    ]
    assert lines(layout.bridge("links") / "links0.log") == ["INFO [bridge.link] b"]


def test_a_bridges_warnings_are_in_the_instances_log_too(logs: Logs, layout: Layout) -> None:
    log = logs.open_bridge("stomp")
    log.logger.info("one")
    log.logger.warn("two")
    assert lines(layout.log / "log.txt") == ["WARNING [imq.bridge.stomp] two"]
    log.set_level(Level.OFF)
    log.logger.warn("three")
    assert len(lines(layout.log / "log.txt")) == 1


def test_a_closed_bridges_events_go_to_the_instances_log(
    logs: Logs, layout: Layout, publisher: LogPublisher
) -> None:
    logs.open_bridge("stomp", namespaces=["gateway.stomp"])
    logs.close_bridge("stomp")
    logs.close_bridge("stomp")
    assert logs.bridge("stomp") is None
    Logger(namespace="gateway.stomp", observer=publisher).info("late")
    assert lines(layout.log / "log.txt") == ["INFO [gateway.stomp] late"]
    again = logs.open_bridge("stomp")
    assert logs.bridge("stomp") is again


def test_a_bridges_log_is_opened_once(logs: Logs) -> None:
    logs.open_bridge("stomp")
    with pytest.raises(ValueError, match="stomp is open"):
        logs.open_bridge("stomp")


def test_a_bridges_log_is_rotated(logs: Logs, layout: Layout) -> None:
    log = logs.open_bridge("stomp", limit=10, count=3)
    for number in range(5):
        log.logger.info("number {number}", number=number)
    directory = layout.bridge("stomp")
    assert sorted(path.name for path in directory.iterdir()) == [
        "stomp0.log",
        "stomp1.log",
        "stomp2.log",
    ]
    assert lines(directory / "stomp1.log") == ["INFO [imq.bridge.stomp] number 4"]


def test_the_instances_log_is_rotated_under_the_originals_names(layout: Layout) -> None:
    logs = Logs(layout, Redaction(), limit=10, count=3)
    for number in range(5):
        logs.instance.logger.info("number {number}", number=number)
    logs.instance.close()
    assert sorted(path.name for path in layout.log.iterdir()) == [
        "log.txt",
        "log_1.txt",
        "log_2.txt",
    ]


def test_after_stopping_nothing_is_observed(layout: Layout, publisher: LogPublisher) -> None:
    logs = Logs(layout, Redaction())
    logs.start(publisher)
    logs.stop(publisher)
    Logger(namespace="x", observer=publisher).info("late")
    assert lines(layout.log / "log.txt") == []


def test_secrets_reach_no_file(logs: Logs, layout: Layout, publisher: LogPublisher) -> None:
    logs.redaction.add("hunter2")
    log = logs.open_bridge("stomp", Level.ALL)
    log.logger.error(
        "{x} {passcode} {headers}", x="hunter2", passcode="hunter3", headers={"passcode": "hunter3"}
    )
    log.logger.debug("frame {frame!r}", frame=b"CONNECT\npasscode:hunter3\n\n\0")
    log.logger.failure("oops", Failure(ValueError("hunter2 passcode:hunter3")))  # type: ignore[no-untyped-call]
    texts = [path.read_text() for path in layout.directory.rglob("*.*") if path.is_file()]
    assert len(texts) == 2
    assert not any(re.search("hunter", text) for text in texts)


def test_reopening_follows_moved_files(logs: Logs, layout: Layout) -> None:
    log = logs.open_bridge("stomp")
    for path in (layout.log / "log.txt", layout.bridge("stomp") / "stomp0.log"):
        path.rename(path.with_suffix(".moved"))
    logs.reopen()
    log.logger.warn("x")
    assert len(lines(layout.log / "log.txt")) == 1
    assert len(lines(layout.bridge("stomp") / "stomp0.log")) == 1


def test_logs_as_the_settings_want_them(layout: Layout) -> None:
    settings, _ = read(
        general.SETTINGS,
        None,
        [
            "imq.log.level=WARNING",
            "imq.keystore.password=hunter2",
            "imq.bridge.links.level=FINER",
            "imq.bridge.links.logfile.limit=1k",
            "imq.bridge.links.logfile.count=2",
            "imq.bridge.bad.logfile.count=0",
        ],
    )
    logs = open_logs(layout, settings)
    assert logs.instance.level is Level.WARNING
    log = open_bridge_log(logs, settings, "links")
    assert log.level is Level.FINER
    for _ in range(20):
        log.logger.debug("hunter2 " + "x" * 500)
    assert open_bridge_log(logs, settings, "stomp").level is Level.INFO
    with pytest.raises(SettingsError):
        open_bridge_log(logs, settings, "bad")
    logs.stop(LogPublisher(logs))
    texts = [path.read_text() for path in layout.bridge("links").iterdir()]
    assert len(texts) == 2
    assert max(len(text) for text in texts) < 2048
    assert not any("hunter" in text for text in texts)


def test_levels_are_changed_together_or_not_at_all(layout: Layout) -> None:
    logs = open_logs(layout, read(general.SETTINGS, None)[0])
    links = logs.open_bridge("links", Level.FINE)
    set_levels(
        logs,
        read(
            general.SETTINGS,
            None,
            ["imq.log.level=WARNING", "imq.bridge.links.level=OFF", "imq.bridge.x.level=no"],
        )[0],
    )
    assert (logs.instance.level, links.level) == (Level.WARNING, Level.OFF)
    with pytest.raises(SettingsError, match=r"imq\.bridge\.links\.level=LOUD"):
        set_levels(
            logs,
            read(general.SETTINGS, None, ["imq.log.level=FINE", "imq.bridge.links.level=LOUD"])[0],
        )
    assert (logs.instance.level, links.level) == (Level.WARNING, Level.OFF)
    logs.stop(LogPublisher(logs))


def test_warnings_are_shown_as_they_are_written_but_what_was_shown_before(
    layout: Layout, publisher: LogPublisher, capfd: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(layout, Redaction(["hunter2"]), shown=True)
    logs.start(publisher)
    bridge = logs.open_bridge("stomp", Level.SEVERE, namespaces=["gateway.stomp"])
    own, stomp = (
        Logger(namespace="n", observer=publisher),
        Logger(namespace="gateway.stomp.x", observer=publisher),
    )
    own.info("nobody looks for this")
    own.warn("a secret: {value}", value="hunter2")
    own.error("told before", announced=True)
    stomp.warn("not taken by its own log")
    bridge.set_level(Level.INFO)
    stomp.warn("of a bridge")
    logs.stop(publisher)
    written = (layout.log / "log.txt").read_text().splitlines()
    assert [line.split("] ", 1)[1] for line in written] == [
        "nobody looks for this",
        "a secret: ********",
        "told before",
        "of a bridge",
    ]
    assert capfd.readouterr().err.splitlines() == [written[1], written[3]]


def test_what_twisted_says_of_ports_is_fine() -> None:
    assert level_of(event(log_namespace="log_legacy")) is Level.FINE
    assert level_of(event(log_namespace="twisted.internet.endpoints.OneShotFactory")) is Level.FINE
    assert level_of(event(log_namespace="twistedly")) is Level.INFO
    assert level_of(event(level=LogLevel.error, log_namespace="log_legacy")) is Level.SEVERE
    assert level_of(event(level=LogLevel.warn, log_namespace="log_legacy")) is Level.WARNING
