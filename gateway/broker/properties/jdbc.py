"""The settings of a store in a database that processes may share.

The names are the original's (``imq.persist.jdbc.*``, ``imq.cluster.*``, ``imq.brokerid``). Owns
their declarations and what they say together: where the database is, and which broker's messages
are this process's. Makes no connection.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.broker.properties import database_url
from gateway.broker.properties.settings import PERSIST_STORE
from gateway.instance.settings import (
    Boolean,
    Choice,
    Duration,
    Integer,
    Setting,
    Settings,
    SettingsError,
    Text,
    ValueType,
)

_NAME: Final = re.compile(r"[A-Za-z0-9_]*")
#: Of a cluster. What follows it in a schema's name begins with "_".
_CLUSTER: Final = re.compile(r"[A-Za-z0-9]*")
#: Bytes that a name in PostgreSQL may have.
_LONGEST_SCHEMA: Final = 63


def _Name(characters: re.Pattern[str], expected: str) -> ValueType[str]:
    def read(text: str) -> str:
        if characters.fullmatch(text.strip()) is None:
            raise ValueError
        return text.strip()

    return ValueType("Name", expected, read)


VENDOR: Final = Setting(
    "imq.persist.jdbc.dbVendor",
    Choice("postgresql"),
    "postgresql",
    "Kind of the database of a store jdbc.",
)
URL: Final = Setting(
    "imq.persist.jdbc.postgresql.opendburl",
    Text(),
    "",
    "URL of the database: postgresql://HOST:PORT,HOST:PORT/DATABASE?sslmode=verify-full as libpq reads it, or one that begins with jdbc:postgresql:. "
    "Of several hosts the one that takes writes is used.",
)
PROPERTY_URL: Final = Setting(
    "imq.persist.jdbc.postgresql.property.url",
    Text(),
    "",
    "The same under the other name that the original has for it; opendburl counts where both are given.",
)
USER: Final = Setting(
    "imq.persist.jdbc.postgresql.user",
    Text(),
    "",
    "User of the database; none is that of the URL, or else the one that runs the gateway.",
)
PASSWORD: Final = Setting(
    "imq.persist.jdbc.password",
    Text(verbatim=True),
    "",
    "Password of the user of the database; belongs in the passfile. None leaves it to libpq: a certificate, or its own password file.",
    secret=True,
)
RECONNECT_TIMEOUT: Final = Setting(
    "imq.persist.jdbc.reconnect.timeout",
    Duration("seconds", 1, 86_400),
    60,
    "How long the database may be out of reach before the gateway ends with exit code 3. Until then clients stay connected, "
    "and nothing is confirmed or delivered.",
)
BROKER_ID: Final = Setting(
    "imq.brokerid",
    _Name(_NAME, "letters of ASCII, digits and '_'"),
    "",
    "The broker whose messages, subscriptions and bridges this process has, in a database that several use; none is the name of the instance.",
    own=True,
)
CLUSTER_ID: Final = Setting(
    "imq.cluster.clusterid",
    _Name(_CLUSTER, "letters of ASCII and digits"),
    "",
    "Name of the cluster of brokers, which keeps those of several clusters apart in one database.",
)
HIGH_AVAILABILITY: Final = Setting(
    "imq.cluster.ha",
    Boolean(),
    False,
    "Whether a process that finds its broker owned by another one stands by and takes over when that one ends. Needs the store jdbc.",
    shared=True,
)
NODE: Final = Setting(
    "imq.cluster.nodename",
    Text(),
    "",
    "What this process is called where owners are shown; none is the name of the host.",
    own=True,
)
HEARTBEAT_INTERVAL: Final = Setting(
    "imq.cluster.heartbeat.interval",
    Duration("seconds", 1, 3600),
    2,
    "An owner without work gives a sign of life in the database this often.",
    shared=True,
)
HEARTBEAT_THRESHOLD: Final = Setting(
    "imq.cluster.heartbeat.threshold",
    Integer(2, 1000),
    3,
    "Signs of life that may be missing before the owner is replaced. An owner that cannot give one stops answering before that.",
    shared=True,
)

SETTINGS: Final[tuple[Setting[Any], ...]] = (
    VENDOR,
    URL,
    PROPERTY_URL,
    USER,
    PASSWORD,
    RECONNECT_TIMEOUT,
    BROKER_ID,
    CLUSTER_ID,
    HIGH_AVAILABILITY,
    NODE,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_THRESHOLD,
)


@dataclass(frozen=True)
class JdbcOptions:
    """Where the database is, and how its brokers are shared.

    :param conninfo: libpq's keywords and their values, with the password.
    :param described: where the database is, without secrets.
    :param schema: this broker's.
    :param cluster_schema: the one that the brokers of its cluster share, "" without a cluster.
    :param broker: its id.
    :param cluster: the id of its cluster, "" for none.
    :param node: this process, where owners are shown.
    :param stands_by: whether it waits for its turn while another process owns the broker.
    :param beat_seconds: an owner without work gives a sign of life so often.
    :param lease_seconds: an owner that has given none for so long is replaced.
    :param reconnect_seconds: how long the database may be out of reach.
    """

    conninfo: Mapping[str, str] = field(repr=False)
    described: str
    schema: str
    cluster_schema: str
    broker: str
    cluster: str
    node: str
    stands_by: bool
    beat_seconds: float
    lease_seconds: float
    reconnect_seconds: float


def jdbc_options(settings: Settings, instance: str) -> JdbcOptions | None:
    """Return the options of a store jdbc, or None where the store is another.

    :param instance: its name, which is the broker's id if no other is given.
    :raises SettingsError: the database cannot be meant, or psycopg is not installed.
    """
    if settings[PERSIST_STORE] != "jdbc":
        if settings[HIGH_AVAILABILITY]:
            raise SettingsError(
                [settings.problem(HIGH_AVAILABILITY, "true with imq.persist.store=jdbc only")]
            )
        return None
    url = URL if settings[URL] or not settings[PROPERTY_URL] else PROPERTY_URL
    try:
        conninfo = database_url.keywords(settings[url])
    except ValueError as error:
        raise SettingsError([settings.problem(url, str(error))]) from error
    except ImportError as error:
        needed = (
            f"another store, or the package psycopg, which the extra [postgresql] brings ({error})"
        )
        raise SettingsError([settings.problem(PERSIST_STORE, needed)]) from error
    where = database_url.described(conninfo)
    if settings[USER]:
        conninfo["user"] = settings[USER]
    if settings[PASSWORD]:
        conninfo["password"] = settings[PASSWORD]
    broker, cluster = settings[BROKER_ID] or instance, settings[CLUSTER_ID]
    schema = f"mqc_{cluster}_{broker}" if cluster else f"mq_{broker}"
    if len(schema.encode()) > _LONGEST_SCHEMA:
        raise SettingsError(
            [
                settings.problem(
                    BROKER_ID,
                    f"an id that makes a schema's name of at most {_LONGEST_SCHEMA} bytes with that of the cluster, not {schema}",
                    value=broker,
                )
            ]
        )
    interval = settings[HEARTBEAT_INTERVAL]
    return JdbcOptions(
        conninfo=conninfo,
        described=where,
        schema=schema,
        # No broker's schema can have this name.
        cluster_schema=f"mqcluster_{cluster}" if cluster else "",
        broker=broker,
        cluster=cluster,
        node=settings[NODE] or socket.gethostname(),
        stands_by=settings[HIGH_AVAILABILITY],
        beat_seconds=interval / 2,
        lease_seconds=float(interval * settings[HEARTBEAT_THRESHOLD]),
        reconnect_seconds=float(settings[RECONNECT_TIMEOUT]),
    )
