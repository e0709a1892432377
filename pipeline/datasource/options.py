"""The options of the data source ``stomp``, and their checks.

Owns every check that needs no broker, so that a wrong option fails before anything is read or sent.
A passcode is never an option, for options are in plans, in logs and on Spark's pages: its file or
its environment variable is named, and read where the connection is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Final

from gateway.messaging.destination import Kind
from gateway.stomp.brokers import BROKERS
from pipeline.datasource import declared, kafka
from pipeline.datasource.errors import OptionError
from pipeline.datasource.places import Place

#: Messages of a micro-batch and of a partition, and messages of a transaction, where ``batchSize``
#: says nothing.
READ_BATCH: Final = 20_000
WRITE_BATCH: Final = 1_000
#: The longest that a task of a stream receives, in seconds, where ``maxSeconds`` says nothing.
STREAM_SECONDS: Final = 10.0
#: The longest time that may be given, in seconds; a socket takes about twice as much.
_LONGEST: Final = 1_000_000

_PORT, _TLS_PORT = 7672, 7673
_AUTO: Final = "auto"
_CONNECTION: Final = (
    *(
        "host",
        "port",
        "login",
        "passcodeFile",
        "passcodeEnv",
        "tls",
        "caFile",
        "certFile",
        "keyFile",
    ),
    *("destination", "broker", "timeoutSeconds", "heartBeatSeconds", "ratePerSecond"),
)


class Use(Enum):
    """What the data source is used for; the value is how an error calls it."""

    BROWSE = "a batch read that browses"
    CONSUME = "a batch read that consumes (browse=false)"
    STREAM = "a stream read"
    WRITE = "a write"


#: The options of each use.
NAMES: Final[Mapping[Use, tuple[str, ...]]] = {
    Use.BROWSE: (
        *(*_CONNECTION, "browse", "selector", "envelope", "maxMessages", "maxSeconds"),
        *("properties", "pushFilters"),
    ),
    Use.CONSUME: (
        *(*_CONNECTION, "browse", "selector", "envelope", "ack", "maxMessages", "maxSeconds"),
        *("subscriptionName", "clientId", "stagingPath", "properties"),
    ),
    Use.STREAM: (
        *(*_CONNECTION, "selector", "envelope", "ack", "batchSize", "maxSeconds", "partitions"),
        *("subscriptionName", "clientId", "stagingPath", "properties"),
        *("maxMessagesPerTrigger", "failOnDataLoss"),
    ),
    Use.WRITE: (*_CONNECTION, "batchSize", "idColumn"),
}
ALL: Final = tuple(dict.fromkeys([name for names in NAMES.values() for name in names]))
#: By these a read is told from one that browses, before it is known to be a stream.
_OF_STREAMS: Final = frozenset(NAMES[Use.STREAM]) - frozenset(NAMES[Use.BROWSE])
#: What Spark itself puts among the options of a data source.
_OF_SPARK: Final = frozenset(("checkpointlocation", "queryname", "outputmode"))
_SECRETS: Final = frozenset(("passcode", "password", "passwd", "secret", "token"))


@dataclass(frozen=True, kw_only=True)
class Options:
    """The checked options; times in seconds.

    None stands for an option that was not given and has no default.

    :ivar properties: types by name.
    :ivar ack: of SUBSCRIBE.
    :ivar batch: as given; the default depends on the use.
    :ivar rate: messages a second.
    """

    host: str = "127.0.0.1"
    port: int = _PORT
    login: str | None = None
    passcode_file: str | None = None
    passcode_env: str | None = None
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    destination: Place | None = None
    selector: str | None = None
    envelope: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    push_filters: bool = False
    ack: str = "client"
    browse: bool | None = None
    max_messages: int | None = None
    max_seconds: float | None = None
    batch: int | None = None
    rate: float | None = None
    partitions: int = 1
    max_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    subscription_name: str | None = None
    client_id: str | None = None
    staging_path: str | None = None
    id_column: str | None = None
    broker: str | None = None
    timeout: float = 30.0
    heart_beat: float = 10.0

    @property
    def address(self) -> str:
        """``HOST:PORT``, for sentences."""
        return f"{self.host}:{self.port}"

    def passcode(self) -> str | None:
        """Read the passcode in the process that connects. Do not keep it.

        :raises OptionError: the file cannot be read, is empty, or the variable is not set here.
        """
        if self.passcode_env is not None:
            value = os.environ.get(self.passcode_env)
            if not value:
                raise OptionError(
                    "passcodeEnv",
                    f"the environment variable {self.passcode_env} is not set; on a cluster it must be in Spark's Python workers, too",
                )
            return value
        if self.passcode_file is None:
            return None
        try:
            lines = Path(self.passcode_file).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise OptionError(
                "passcodeFile", f"{self.passcode_file} cannot be read: {error.strerror}"
            ) from None
        except UnicodeDecodeError:
            raise OptionError("passcodeFile", f"{self.passcode_file} is not UTF-8") from None
        if not lines or not lines[0]:
            raise OptionError(
                "passcodeFile",
                f"{self.passcode_file} is empty; its first line is expected to be the passcode",
            )
        return lines[0]


def parse(given: Mapping[str, str], use: Use) -> Options:
    """The options of a use.

    :param given: by name, in any case of letters, as Spark hands them over.
    :raises OptionError: for the first that is wrong.
    """
    values = _named(given)
    for name in values:
        if name not in NAMES[use]:
            raise OptionError(
                name, f"{use.value} has no such option; it has {', '.join(NAMES[use])}"
            )
    options = _read(values)
    _check_connection(options)
    _CHECKS[use](options)
    return options


def parse_reading(given: Mapping[str, str]) -> Options:
    """Parse the options of a read before it is known which of the three it is.

    :raises OptionError: they are right for none; the text is that of the use that they look like.
    """
    values = _named(given)
    looks_like = Use.BROWSE
    if values.get("browse", "").strip().lower() == "false":
        looks_like = Use.CONSUME
    elif _OF_STREAMS & set(values):
        looks_like = Use.STREAM
    try:
        return parse(given, looks_like)
    except OptionError:
        if looks_like is Use.BROWSE and "browse" not in values and "maxMessages" not in values:
            # A stream without stagingPath looks like this; what is wrong with it is told when it
            # starts.
            return parse({**given, "stagingPath": "/"}, Use.STREAM)
        raise


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """The options by the names as they are documented."""
    known = {name.lower(): name for name in ALL}
    values: dict[str, str] = {}
    for key, value in given.items():
        small = key.lower()
        if small in _SECRETS:
            raise OptionError(
                key,
                "options are seen in plans and on Spark's pages; expected passcodeFile or passcodeEnv, which only name it",
            )
        if small in _OF_SPARK:
            continue
        if small == "path":
            raise OptionError(
                "path", "load() and save() take no path here; expected the option destination"
            )
        name = known.get(small)
        if name is None:
            if (hint := kafka.hint(small)) is not None:
                raise OptionError(key, hint)
            near = get_close_matches(small, known, 1)
            meant = f"; did you mean {known[near[0]]}?" if near else f"; known are {', '.join(ALL)}"
            raise OptionError(key, f"is unknown{meant}")
        values[name] = value
    return values


def _read(values: Mapping[str, str]) -> Options:
    """Each value for itself."""
    tls = _boolean(values, "tls") or False
    destination = values.get("destination")
    ack = values.get("ack", "client")
    if ack not in ("client", "client-individual"):
        raise OptionError("ack", f"is {ack!r}, expected client or client-individual")
    broker = values.get("broker", _AUTO)
    if broker != _AUTO and broker not in BROKERS:
        raise OptionError(
            "broker", f"is {broker!r}, expected {_AUTO} or one of {', '.join(BROKERS)}"
        )
    port = _whole(values, "port", 1, 65535)
    return Options(
        host=_host(values) or "127.0.0.1",
        port=port if port is not None else (_TLS_PORT if tls else _PORT),
        login=_text(values, "login"),
        passcode_file=_text(values, "passcodeFile"),
        passcode_env=_text(values, "passcodeEnv"),
        tls=tls,
        ca_file=_text(values, "caFile"),
        cert_file=_text(values, "certFile"),
        key_file=_text(values, "keyFile"),
        destination=None if destination is None else _place(destination),
        selector=_text(values, "selector"),
        envelope=_boolean(values, "envelope") or False,
        properties=declared.parse(values[declared.OPTION]) if declared.OPTION in values else {},
        push_filters=_boolean(values, "pushFilters") or False,
        ack=ack,
        browse=_boolean(values, "browse"),
        max_messages=_whole(values, "maxMessages", 1),
        max_seconds=_seconds(values, "maxSeconds"),
        batch=_whole(values, "batchSize", 1, 1_000_000),
        rate=_number(values, "ratePerSecond"),
        partitions=_whole(values, "partitions", 1, 1000) or 1,
        max_per_trigger=_whole(values, "maxMessagesPerTrigger", 1),
        fail_on_data_loss=_boolean(values, "failOnDataLoss") is not False,
        subscription_name=_text(values, "subscriptionName"),
        client_id=_text(values, "clientId"),
        staging_path=_folder(values, "stagingPath"),
        id_column=_text(values, "idColumn"),
        broker=None if broker == _AUTO else broker,
        timeout=_seconds(values, "timeoutSeconds") or Options.timeout,
        heart_beat=Options.heart_beat
        if "heartBeatSeconds" not in values
        else _seconds(values, "heartBeatSeconds", zero=True) or 0.0,
    )


def _check_connection(options: Options) -> None:
    if options.passcode_file is not None and options.passcode_env is not None:
        raise OptionError("passcodeEnv", "passcodeFile is given as well; expected one of them")
    if options.login is None and (
        options.passcode_file is not None or options.passcode_env is not None
    ):
        raise OptionError("login", "is missing beside the passcode")
    for name, value in (
        ("caFile", options.ca_file),
        ("certFile", options.cert_file),
        ("keyFile", options.key_file),
    ):
        if value is not None and not options.tls:
            raise OptionError(name, "is of use with TLS only; expected tls=true beside it")
    if options.key_file is not None and options.cert_file is None:
        raise OptionError("keyFile", "has no certificate to belong to; expected certFile beside it")


def _check_source(options: Options, reading: Use) -> None:
    place = options.destination
    if place is None:
        raise OptionError(
            "destination",
            f"is missing: {reading.value} needs it; expected queue:NAME, topic:NAME or the broker's own spelling",
        )
    if place.kind is Kind.TOPIC:
        if options.subscription_name is None:
            raise OptionError(
                "subscriptionName",
                f"is missing: {place} is a topic, and what is consumed of one is a durable subscription",
            )
        if options.client_id is None:
            raise OptionError("clientId", "is missing: a durable subscription belongs to one")
        if options.partitions > 1:
            raise OptionError(
                "partitions",
                f"is {options.partitions}, and {place} is a topic; a durable subscription has 1 consumer",
            )
    else:
        for name, value in (
            ("subscriptionName", options.subscription_name),
            ("clientId", options.client_id),
        ):
            if value is not None:
                raise OptionError(name, f"is for topics, and {place} is a queue")
    if options.staging_path is None:
        raise OptionError(
            "stagingPath",
            f"is missing: {reading.value} needs it; expected a folder on a file system that all executors share",
        )


def _check_browse(options: Options) -> None:
    place = options.destination
    if place is None:
        raise OptionError(
            "destination",
            "is missing; expected queue:NAME, or the broker's own spelling of a queue",
        )
    if place.kind is Kind.TOPIC:
        raise OptionError("destination", f"{place} is a topic, and only queues can be browsed")
    if options.browse is False:
        raise OptionError("browse", "is false")
    if options.broker is not None and not BROKERS[options.broker].browse:
        raise OptionError(
            "broker",
            f"{options.broker} cannot browse over STOMP; expected browse=false, and a stagingPath, to consume",
        )


def _check_consume(options: Options) -> None:
    if options.browse is not False:
        raise OptionError("browse", "expected false for a batch read that consumes")
    _check_source(options, Use.CONSUME)
    if options.max_messages is None and options.max_seconds is None:
        raise OptionError(
            "maxMessages",
            "is missing, and maxSeconds, too; expected one of them, or both: what is consumed has an end",
        )


def _check_write(options: Options) -> None:
    if options.destination is not None and options.destination.wild:
        raise OptionError(
            "destination",
            f"{options.destination} has wildcards, and messages are sent to one destination",
        )


_CHECKS: Final = {
    Use.BROWSE: _check_browse,
    Use.CONSUME: _check_consume,
    Use.STREAM: lambda options: _check_source(options, Use.STREAM),
    Use.WRITE: _check_write,
}


def _text(values: Mapping[str, str], name: str) -> str | None:
    value = values.get(name)
    if value is None:
        return None
    if not value.strip():
        raise OptionError(name, "is empty")
    if "\0" in value:
        raise OptionError(name, "holds a NUL, which STOMP cannot carry")
    return value


def _boolean(values: Mapping[str, str], name: str) -> bool | None:
    value = values.get(name)
    if value is None:
        return None
    small = value.strip().lower()
    if small not in ("true", "false"):
        raise OptionError(name, f"is {value!r}, expected true or false")
    return small == "true"


def _whole(values: Mapping[str, str], name: str, least: int, most: int | None = None) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    expected = (
        f"a whole number of {least} or more"
        if most is None
        else f"a whole number from {least} to {most}"
    )
    if not re.fullmatch(r"[0-9]{1,12}", value.strip()):
        raise OptionError(name, f"is {value!r}, expected {expected}")
    number = int(value)
    if number < least or (most is not None and number > most):
        raise OptionError(name, f"is {value!r}, expected {expected}")
    return number


def _number(values: Mapping[str, str], name: str, zero: bool = False) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value.strip()) or (
        float(value) == 0 and not zero
    ):
        raise OptionError(
            name, f"is {value!r}, expected a number {'of 0 or more' if zero else 'above 0'}"
        )
    return float(value)


def _seconds(values: Mapping[str, str], name: str, zero: bool = False) -> float | None:
    number = _number(values, name, zero)
    if number is not None and number > _LONGEST:
        raise OptionError(name, f"is {values[name]!r}, expected at most {_LONGEST} s")
    return number


def _host(values: Mapping[str, str]) -> str | None:
    host = _text(values, "host")
    if host is not None:
        try:
            host.encode("idna")
        except UnicodeError:
            raise OptionError("host", f"is {host!r}, expected a host's name or address") from None
    return host


def _place(text: str) -> Place:
    try:
        return Place.parse(text)
    except ValueError as error:
        raise OptionError("destination", f"is {text!r}: {error}") from None


def _folder(values: Mapping[str, str], name: str) -> str | None:
    value = _text(values, name)
    if value is None:
        return None
    path = value.removeprefix("file://")
    if "://" in path or not path.startswith("/"):
        raise OptionError(
            name,
            f"is {value!r}, expected an absolute path of a folder on a file system that all executors share",
        )
    return path
