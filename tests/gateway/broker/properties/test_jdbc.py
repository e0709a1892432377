"""The settings of a store in a database: URLs, names, refusals."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.properties import database_url
from gateway.broker.properties.jdbc import SETTINGS, JdbcOptions, jdbc_options
from gateway.broker.properties.settings import PERSIST_STORE
from gateway.configuration import configure
from gateway.instance.settings import SettingsError, read

_URL: Final = "imq.persist.jdbc.postgresql.opendburl=postgresql://one/mq"


def options(*overrides: str) -> JdbcOptions | None:
    settings, _ = read((PERSIST_STORE, *SETTINGS), None, overrides)
    return jdbc_options(settings, "imqbroker")


def jdbc(*overrides: str) -> JdbcOptions:
    found = options("imq.persist.store=jdbc", *overrides)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://one/mq", {"host": "one", "dbname": "mq"}),
        (
            "postgres://mq@one:5433,two/mq?target_session_attrs=read-write&sslmode=verify-full",
            {
                "user": "mq",
                "host": "one,two",
                "port": "5433,",
                "dbname": "mq",
                "target_session_attrs": "read-write",
                "sslmode": "verify-full",
            },
        ),
        ("jdbc:postgresql://one:5433/mq", {"host": "one", "port": "5433", "dbname": "mq"}),
        ("jdbc:postgresql://[::1]:5433/mq", {"host": "::1", "port": "5433", "dbname": "mq"}),
        ("jdbc:postgresql:mq", {"host": "localhost", "dbname": "mq"}),
        (
            "jdbc:postgresql://one:1,two:2/mq?targetServerType=primary&connectTimeout=4",
            {
                "host": "one,two",
                "port": "1,2",
                "dbname": "mq",
                "target_session_attrs": "read-write",
                "connect_timeout": "4",
            },
        ),
        (
            "jdbc:postgresql://one/mq?ssl=true&user=mq&ApplicationName=x",
            {"host": "one", "dbname": "mq", "sslmode": "verify-full", "user": "mq"},
        ),
        (
            "jdbc:postgresql://one/mq?ssl=true&sslmode=require&sslrootcert=/ca%20s.pem",
            {"host": "one", "dbname": "mq", "sslmode": "require", "sslrootcert": "/ca s.pem"},
        ),
    ],
)
def test_urls_of_both_kinds_are_read(url: str, expected: dict[str, str]) -> None:
    assert database_url.keywords(url) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "expected postgresql://"),
        ("mysql://one/mq", "expected postgresql://"),
        ("jdbc:mysql://one/mq", "expected postgresql://"),
        ("postgresql://one", "expected the name of a database"),
        ("postgresql://one/mq?colour=red", "expected postgresql://"),
        ("postgresql://mq:sesame@one/mq", "expected a URL without a password"),
        ("jdbc:postgresql://one/mq?password=sesame", "expected a URL without a password"),
        ("jdbc:postgresql://one/mq?reWriteBatched=1", "known in the place of reWriteBatched"),
        ("jdbc:postgresql://one/mq?targetServerType=secondary", "place of targetServerType"),
        ("postgresql://one/mq?target_session_attrs=standby", "target_session_attrs=read-write"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, expected: str) -> None:
    with pytest.raises(SettingsError) as refused:
        jdbc(f"imq.persist.jdbc.postgresql.opendburl={url}")
    assert expected in str(refused.value)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_a_name_survives_both_kinds_of_url(name: str) -> None:
    quoted = quote(name, safe="")
    for url in (f"postgresql://one/{quoted}", f"jdbc:postgresql://one/{quoted}"):
        assert database_url.keywords(url)["dbname"] == name


@given(st.text())
def test_any_text_is_a_url_or_refused(text: str) -> None:
    for url in (text, f"postgresql://{text}", f"jdbc:postgresql:{text}"):
        try:
            found = database_url.keywords(url)
        except ValueError:
            continue
        assert found["dbname"]
        assert found["dbname"] in database_url.described(found)


def test_defaults() -> None:
    found = jdbc(_URL)
    assert (found.schema, found.broker, found.cluster) == ("mq_imqbroker", "imqbroker", "")
    assert found.node == socket.gethostname()
    assert found.described == "one:5432/mq"
    assert (found.beat_seconds, found.lease_seconds, found.reconnect_seconds) == (1.0, 6.0, 60.0)
    assert not found.stands_by


def test_several_hosts_are_shown() -> None:
    found = jdbc("imq.persist.jdbc.postgresql.opendburl=postgresql://one:1,[::2]:2/mq")
    assert found.described == "one:1,[::2]:2/mq"


def test_a_cluster_keeps_its_brokers_apart() -> None:
    ours = jdbc(_URL, "imq.cluster.clusterid=east", "imq.brokerid=b1", "imq.cluster.nodename=m1")
    assert (ours.schema, ours.node) == ("mqc_east_b1", "m1")


def test_the_user_and_the_password_are_not_of_the_url_and_not_shown() -> None:
    found = jdbc(_URL, "imq.persist.jdbc.postgresql.user=mq", "imq.persist.jdbc.password=sesame")
    assert (found.conninfo["user"], found.conninfo["password"]) == ("mq", "sesame")
    assert "sesame" not in repr(found)


def test_the_other_name_of_the_url() -> None:
    other = "imq.persist.jdbc.postgresql.property.url=jdbc:postgresql://two/mq"
    assert jdbc(other).described == "two:5432/mq"
    assert jdbc(_URL, other).described == "one:5432/mq"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("imq.brokerid=a-b", "letters of ASCII, digits and '_'"),
        # Broker b_c of cluster a would be broker c of this one.
        ("imq.cluster.clusterid=a_b", "letters of ASCII and digits"),
        (f"imq.brokerid={'b' * 61}", "at most 63 bytes"),
        ("imq.cluster.heartbeat.threshold=1", "from 2 to 1000"),
    ],
)
def test_names_and_numbers_are_checked(override: str, expected: str) -> None:
    with pytest.raises(SettingsError) as refused:
        jdbc(_URL, override)
    assert expected in str(refused.value)


def test_standing_by_needs_a_database() -> None:
    assert options() is None
    with pytest.raises(SettingsError) as refused:
        options("imq.cluster.ha=true")
    assert "imq.cluster.ha=true: expected true with imq.persist.store=jdbc only" in str(
        refused.value
    )


def test_connections_of_the_originals_pool_are_a_warning(tmp_path: Path) -> None:
    given = ["imq.persist.store=jdbc", _URL, "imq.persist.jdbc.max_connections=5"]
    found = configure(tmp_path, "one", None, given)
    assert found.jdbc is not None
    assert ["imq.persist.jdbc.max_connections" in line for line in found.warnings] == [True]
