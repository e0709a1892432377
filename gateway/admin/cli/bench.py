"""``imqcmd bench``: how fast a gateway is, from here.

Owns the destination of a run: one of its own, made and destroyed, or one that has nothing of others.
What is measured is :mod:`gateway.admin.cli.bench_load`'s.
"""

from __future__ import annotations

import secrets
import ssl
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gateway.admin.cli.client import AdminClient, AdminError, is_here, port_mapper_entries
from gateway.admin.cli.commands import Command, Common, UsageError
from gateway.admin.cli.render import listed, table

if TYPE_CHECKING:
    from gateway.admin.cli.bench_load import Histogram, Outcome, Server

_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
ACKS: Final = ("auto", "client", "client-individual")
#: The names of the services in the port mapper, without TLS and with it.
_SERVICES: Final = {False: "stomp[bridge]", True: "sslstomp[bridge]"}


def _number(options: Namespace, option: str, default: int, least: int, most: int) -> int:
    """:raises UsageError: it is no number, or out of bounds."""
    text = getattr(options, option)
    try:
        value = default if text is None else int(text)
        if least <= value <= most:
            return value
    except ValueError:
        pass
    raise UsageError(f"-{option} {text}: expected a whole number of {least} to {most}")


def _run(command: Command, common: Common, options: Namespace) -> int:
    # They take a moment that other commands need not wait for.
    from gateway.admin.cli import bench_load

    kind = options.type or "queue"
    name = options.name or f"bench.{secrets.token_hex(4)}"
    ack = options.ack or "auto"
    if ack not in ACKS:
        raise UsageError(f"-ack {ack}: expected {', '.join(ACKS)}")
    load = bench_load.Load(
        destination=f"/{kind}/{name}",
        producers=_number(options, "producers", 1, 1, 1000),
        consumers=_number(options, "consumers", 1, 0, 1000),
        size=_number(options, "size", 1024, 0, 64 * 1024**2),
        persistent=options.persistent,
        window=_number(options, "window", 100, 0, 100_000),
        ack=ack,
        seconds=_number(options, "duration", 10, 1, 86_400),
        run=secrets.token_hex(8),
    )
    client = common.client()
    server = _server(common, client)
    common.say("Loading the broker specified by:")
    common.say()
    common.say_broker()
    with _destination(client, kind, name, load.run):
        try:
            outcome = bench_load.run(server, load)
        except (bench_load.Refused, OSError) as error:
            raise AdminError(
                f"{server.host}:{server.port} cannot be used: {error or type(error).__name__}"
            ) from None
    lost = max(0, outcome.sent * load.copies - outcome.received)
    common.say(
        listed(
            [
                ("Destination", f"{kind}:{name}"),
                ("Producers, Consumers", f"{load.producers}, {load.consumers}"),
                ("Body", f"{load.size} bytes, {'' if load.persistent else 'not '}persistent"),
                ("Sent", _rate(outcome.sent, outcome.sent_s, load.size)),
                ("Received", _rate(outcome.received, outcome.received_s, load.size)),
                ("Not Received", str(lost)),
                ("Errors", str(outcome.error_count)),
            ]
        )
    )
    heads = ("Latency in ms", *(f"{percent:g} %" for percent in _PERCENTILES), "Longest")
    rows = [
        (what, *(f"{us / 1000:.2f}" for us in _measured(found)))
        for what, found in (
            ("until received", outcome.latency),
            ("until its receipt", outcome.receipts),
        )
        if found.count
    ]
    if rows:
        common.say(table(heads, rows))
    for text in outcome.errors:
        common.complain(f"{common.program}: Error: {text}")
    common.show_json(_as_json(outcome, lost))
    return 1 if outcome.error_count or lost else 0


def _measured(found: Histogram) -> list[int]:
    return [*(found.percentile(percent) for percent in _PERCENTILES), found.longest_us]


def _rate(count: int, seconds: float, size: int) -> str:
    if not count or not seconds:
        return str(count)
    rate = count / seconds
    return f"{count} in {seconds:.1f} s: {rate:.0f} a second, {rate * size / 1024**2:.1f} MiB/s"


def _as_json(outcome: Outcome, lost: int) -> dict[str, object]:
    def latency(found: Histogram) -> dict[str, object]:
        names = [*(f"p{percent:g}" for percent in _PERCENTILES), "longest"]
        return {"count": found.count, **dict(zip(names, _measured(found), strict=True))}

    return {
        "sent": outcome.sent,
        "sent_seconds": outcome.sent_s,
        "received": outcome.received,
        "received_seconds": outcome.received_s,
        "not_received": lost,
        "latency_us": latency(outcome.latency),
        "receipt_us": latency(outcome.receipts),
        "error_count": outcome.error_count,
        "errors": outcome.errors,
    }


def _server(common: Common, client: AdminClient) -> Server:
    """:raises AdminError: there is no such service."""
    from gateway.admin.cli.bench_load import Server

    # A passcode goes in the clear only where it does not leave this machine.
    tls = common.secure or not is_here(common.host)
    entries = port_mapper_entries(common.host, common.port, common.timeout_s)
    port = next((each.port for each in entries if each.name == _SERVICES[tls]), None)
    if port is None:
        raise AdminError(
            f"the broker at {common.host}:{common.port} has no service {_SERVICES[tls]}: "
            + (
                "imq.bridge.stomp.tls.enabled"
                if tls
                else "imq.bridge.stomp.tcp.enabled; -secure uses TLS"
            )
        )
    user, passcode = client.credentials
    context = None
    if tls:
        try:
            context = ssl.create_default_context(
                cafile=None if common.cacert is None else str(common.cacert)
            )
        except OSError as error:
            raise AdminError(f"{common.cacert}: {error.strerror or error}") from None
    return Server(common.host, port, user, passcode, context)


@contextmanager
def _destination(client: AdminClient, kind: str, name: str, run: str) -> Iterator[None]:
    """Have a destination without other users, and leave nothing in it.

    :raises AdminError: others use it.
    """
    there = next(
        (
            each
            for each in client.get("/v1/destinations", type=kind, temporary=True)["destinations"]
            if each["name"] == name
        ),
        None,
    )
    which = {"type": kind, "name": name}
    if there is None:
        client.ask("POST", "/v1/destinations", {**which, "properties": {"useDMQ": "false"}})
        clean: tuple[str, str, dict[str, str]] = ("DELETE", "/v1/destination", which)
    else:
        for what in ("messages", "producers", "consumers"):
            if there[what]:
                raise AdminError(
                    f"{kind}:{name} has {there[what]} {what} of others: name another destination, or none for one of its own"
                )
        from gateway.admin.cli.bench_load import RUN

        mine = {**which, "selector": f"{RUN} = '{run}'"}
        clean = ("POST", "/v1/destination/purge", mine)
    try:
        yield
    finally:
        client.ask(*clean)


#: By subcommand and argument.
BENCH: Final[Mapping[tuple[str, str], Command]] = {
    ("bench", ""): Command(
        run=_run,
        may=(
            "-t",
            "-n",
            "-producers",
            "-consumers",
            "-size",
            "-persistent",
            "-window",
            "-ack",
            "-duration",
        ),
    ),
}
