"""The ``imqkeytool`` command.

Owns the command line: options, what is printed, exit codes, and the one line of a passfile that
concerns it (``imq.keystore.password=PASSWORD``, in UTF-8, in the syntax of .properties files). What
is done is :mod:`certs.keystore`'s.

Exit codes: 0 done; 1 it could not be done, or ``check`` found something that ends, is revoked or is
missing; 2 the command line is wrong, or ``check`` could not read the files. An error is one line on
the standard error.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import get_completion_class
from cryptography import x509

from certs.authority import (
    AUTHORITY_DAYS,
    LEAF_DAYS,
    IPAddress,
    KeyType,
    alternative_names,
    check_dns,
)
from certs.files import PASSWORD_NAME, CertificateFileError, read
from certs.keystore import SERVER_NAME, Entry, KeyStore, KeyStoreError, ending, revoked_in_use
from certs.revocations import difference
from gateway.instance.command_end import broken_pipes_of_click, run_to_the_end

PROGRAM: Final = "imqkeytool"
DEFAULT_INSTANCE: Final = "imqbroker"
_RELOAD: Final = (
    "A running server reads it within a minute (imq.tls.watch), or when it gets SIGHUP."
)
_WARN_DAYS: Final = 30

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _dns_names(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    try:
        return tuple(check_dns(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _ip_addresses(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[IPAddress, ...]:
    addresses = []
    for value in values:
        try:
            addresses.append(ipaddress.ip_address(value))
        except ValueError:
            raise click.BadParameter(f"{value!r}: expected an IPv4 or IPv6 address") from None
    return tuple(addresses)


_PATH: Final = click.Path(path_type=Path)
_KEYS: Final = click.Choice([each.value for each in KeyType])
_REASONS: Final = {
    "unspecified": None,
    "key-compromise": x509.ReasonFlags.key_compromise,
    "affiliation-changed": x509.ReasonFlags.affiliation_changed,
    "superseded": x509.ReasonFlags.superseded,
    "cessation-of-operation": x509.ReasonFlags.cessation_of_operation,
    "privilege-withdrawn": x509.ReasonFlags.privilege_withdrawn,
}


def _with_store(function: _Command) -> _Command:
    """Give the command the options that say which key store it works on."""
    for option in (
        click.option(
            "--dir",
            "directory",
            type=_PATH,
            help="The folder of keys and certificates, in place of an instance's.",
        ),
        click.option(
            "--varhome",
            "-varhome",
            type=_PATH,
            envvar="IMQ_VARHOME",
            default=Path("var"),
            show_default=True,
            help="The directory of all instances' data; also by the environment's IMQ_VARHOME.",
        ),
        click.option(
            "--instance",
            "-i",
            "-b",
            default=DEFAULT_INSTANCE,
            show_default=True,
            help="The instance.",
        ),
        click.option(
            "--passfile",
            "-passfile",
            type=_PATH,
            help=f"Has {PASSWORD_NAME}, which encrypts the keys of the authority and the server. By default the instance's own, where it has one.",
        ),
    ):
        function = option(function)
    return function


_days = click.option(
    "--days",
    type=click.IntRange(1, 36500),
    default=LEAF_DAYS,
    show_default=True,
    help="How long it is valid.",
)
_key = click.option(
    "--key",
    "key_type",
    type=_KEYS,
    default="ec",
    show_default=True,
    help="EC is P-256; RSA is for old clients.",
)
_force = click.option("--force", is_flag=True, help="Replace what is there.")


@click.group()
def command() -> None:
    """Make and look after the certificates of an instance."""


@command.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what completes command lines in a shell."""
    made = get_completion_class(shell)
    assert made is not None
    # The script asks this program, so that it never knows less.
    click.echo(made(command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())


@command.command()
@_with_store
@click.option("--name", help="Its common name; by default one with the instance's name.")
@click.option(
    "--days",
    type=click.IntRange(1, 36500),
    default=AUTHORITY_DAYS,
    show_default=True,
    help="How long it is valid.",
)
@_key
@_force
@click.pass_obj
def ca(
    now: datetime, /, name: str | None, days: int, key_type: str, force: bool, **where: Any
) -> None:
    """Make the certificate authority. Clients are given its certificate, ca.pem, to trust."""
    store = _store(**where)
    _make_authority(store, now, name, days, KeyType(key_type), force, where["instance"])
    if force:
        click.echo(
            "Certificates of an authority that was replaced are trusted no more; make new ones."
        )


@command.command()
@_with_store
@click.option("--name", help="Its common name; by default its first host name or address.")
@click.option(
    "--dns",
    multiple=True,
    metavar="HOST",
    callback=_dns_names,
    help="A host name that clients connect to. May be repeated.",
)
@click.option(
    "--ip",
    multiple=True,
    metavar="ADDRESS",
    callback=_ip_addresses,
    help="An address that clients connect to. May be repeated.",
)
@_days
@_key
@_force
@click.pass_obj
def server(
    now: datetime,
    /,
    name: str | None,
    dns: tuple[str, ...],
    ip: tuple[IPAddress, ...],
    days: int,
    key_type: str,
    force: bool,
    **where: Any,
) -> None:
    """Make the server's certificate, and the authority if there is none.

    Without --dns and --ip it is for this machine: its name, localhost, 127.0.0.1 and ::1.
    """
    store = _store(**where)
    if not dns and not ip:
        dns, ip = _own_names()
    if not store.authority_certificate.exists():
        _make_authority(
            store, now, None, AUTHORITY_DAYS, KeyType(key_type), False, where["instance"]
        )
    certificate = store.issue_server(
        name or (dns[0][:64] if dns else str(ip[0])),
        now,
        dns,
        ip,
        days,
        KeyType(key_type),
        force,
    )
    click.echo(
        f"Made {store.server_certificate} for {', '.join((*dns, *map(str, ip)))}, valid until {_day(certificate)}."
    )
    click.echo(_RELOAD)


# The original's name for it.
command.add_command(server, "broker")


@command.command()
@_with_store
@click.option(
    "--name",
    required=True,
    help="The user that the client connects as; the certificate's common name.",
)
@click.option(
    "--group",
    multiple=True,
    help="A group of that user, where imq.bridge.stomp.tls.certificateGroups is set; an organizational unit (OU) of the certificate. May be repeated.",
)
@_days
@_key
@click.option(
    "--passphrase", is_flag=True, help="Ask for a passphrase that encrypts the client's key."
)
@_force
@click.pass_obj
def client(
    now: datetime,
    /,
    name: str,
    group: tuple[str, ...],
    days: int,
    key_type: str,
    passphrase: bool,
    force: bool,
    **where: Any,
) -> None:
    """Make a client's certificate and key, to be handed to the client."""
    store = _store(**where)
    path, key = store.client_files(name)
    secret = (
        click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True).encode()
        if passphrase
        else None
    )
    certificate = store.issue_client(name, now, days, KeyType(key_type), secret, force, group)
    click.echo(f"Made {path} and {key}, valid until {_day(certificate)}.")


@command.command("list")
@_with_store
@click.pass_obj
def list_(now: datetime, /, **where: Any) -> None:
    """List the certificates."""
    store = _store(**where)
    entries = store.entries()
    if not entries:
        raise KeyStoreError(f"{store.folder} has no certificates")
    rows: list[tuple[str, ...]] = [("NAME", "KIND", "UNTIL", "STATE", "SERIAL", "FOR")]
    rows += [_row(entry, now) for entry in entries]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


@command.command()
@_with_store
@click.option(
    "--days",
    type=click.IntRange(0),
    default=_WARN_DAYS,
    show_default=True,
    help="How soon is soon.",
)
@click.pass_context
def check(context: click.Context, /, days: int, **where: Any) -> None:
    """Say which certificates have ended or end within some days, whether the server's is revoked,
    and whether the revocation list is missing or lacks what was revoked. The exit code is then 1,
    else 0.
    """
    store, now = _store(**where), context.obj
    try:
        if not store.entries():
            raise KeyStoreError(f"{store.folder} has no certificates")
        differs = difference(store.register, store.revocation_list, store.authority_certificate)
        found = [
            *revoked_in_use(store),
            *([] if differs is None else [differs]),
            *ending(store, now, timedelta(days=days)),
        ]
    except (CertificateFileError, KeyStoreError) as error:
        _complain(error)
        context.exit(2)
    for each in found:
        click.echo(str(each))
    context.exit(1 if found else 0)


@command.command()
@_with_store
@click.argument("name")
@click.option(
    "--days",
    type=click.IntRange(1, 36500),
    help="How long it is valid; by default as long as a new one.",
)
@click.pass_obj
def renew(now: datetime, /, name: str, days: int | None, **where: Any) -> None:
    """Renew the certificate called NAME: ca, server, or a client's. Its names and its key stay."""
    store = _store(**where)
    certificate = store.renew(name, now, days)
    click.echo(f"Renewed {name}, valid until {_day(certificate)}.")
    click.echo(_RELOAD)


@command.command()
@_with_store
@click.argument("name")
@click.option(
    "--reason", type=click.Choice(list(_REASONS)), default="unspecified", show_default=True
)
@click.pass_obj
def revoke(now: datetime, /, name: str, reason: str, **where: Any) -> None:
    """Revoke every certificate called NAME: server, or a client's."""
    store = _store(**where)
    for serial in store.revoke(name, now, _REASONS[reason]):
        click.echo(f"Revoked {name}, serial number {serial:x}.")
    if name == SERVER_NAME:
        click.echo(
            "The server shows it to clients until there is another: imqkeytool server --force makes one."
        )
    click.echo(_RELOAD)


@command.command()
@_with_store
@click.pass_obj
def crl(now: datetime, /, **where: Any) -> None:
    """Write the revocation list, crl.pem, anew from the register of certificates, where it is
    missing or damaged.
    """
    store = _store(**where)
    count = store.publish(now)
    click.echo(
        f"Made {store.revocation_list}; it has {count} revoked certificate{'' if count == 1 else 's'}."
    )
    click.echo(_RELOAD)


def run(arguments: Sequence[str], now: datetime | None = None) -> int:
    """Run the command.

    :param now: the time; None takes the clock's.
    :returns: the exit code.
    :raises BrokenPipeError: nothing reads the output any more.
    """
    now = datetime.now(UTC) if now is None else now
    with broken_pipes_of_click():
        try:
            code = command.main(list(arguments), PROGRAM, standalone_mode=False, obj=now)
        except click.ClickException as error:
            _complain(error.format_message())
            return error.exit_code
        except click.Abort:
            _complain("aborted")
            return 1
        except (CertificateFileError, KeyStoreError) as error:
            _complain(error)
            return 1
    return code if isinstance(code, int) else 0


def main() -> None:
    """The console script."""
    run_to_the_end(run)


def _complain(error: object) -> None:
    click.echo(f"{PROGRAM}: {error}", err=True)


def _store(directory: Path | None, varhome: Path, instance: str, passfile: Path | None) -> KeyStore:
    if directory is None:
        if instance in ("", ".", "..") or os.sep in instance:
            raise click.UsageError(f"{instance!r} cannot be the name of an instance")
        directory = varhome.absolute() / "instances" / instance / "etc" / "tls"
    if passfile is not None:
        password = read_password(passfile)
        if password is None:
            raise KeyStoreError(f"{passfile} has no {PASSWORD_NAME}")
        return KeyStore(directory, password)
    own = directory.parent / "passfile"
    return KeyStore(directory, read_password(own) if own.exists() else None)


def _make_authority(
    store: KeyStore,
    now: datetime,
    name: str | None,
    days: int,
    key_type: KeyType,
    force: bool,
    instance: str,
) -> None:
    certificate = store.create_authority(
        name or f"stomp-gateway {instance} CA"[:64].strip(), now, days, key_type, force
    )
    click.echo(f"Made {store.authority_certificate}, valid until {_day(certificate)}.")


def _own_names() -> tuple[tuple[str, ...], tuple[IPAddress, ...]]:
    """What this machine is called."""
    names = ["localhost"]
    host = socket.gethostname()
    if host != "localhost":
        try:
            names.insert(0, check_dns(host))
        except ValueError:
            click.echo(
                f"{PROGRAM}: this machine's name {host!r} is left out: it cannot be in a certificate",
                err=True,
            )
    return tuple(names), (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


def _day(certificate: x509.Certificate) -> str:
    return f"{certificate.not_valid_after_utc:%Y-%m-%d}"


def _row(entry: Entry, now: datetime) -> tuple[str, ...]:
    if entry.revoked is not None:
        state = f"revoked {entry.revoked:%Y-%m-%d}"
    elif entry.certificate.not_valid_after_utc <= now:
        state = "expired"
    else:
        state = "valid"
    names = ",".join(str(name.value) for name in alternative_names(entry.certificate))
    return (
        entry.name,
        entry.kind,
        _day(entry.certificate),
        state,
        f"{entry.certificate.serial_number:x}",
        names or "-",
    )


_LINE: Final = re.compile(rf"[ \t\f]*{re.escape(PASSWORD_NAME)}[ \t\f]*[=: \t\f][ \t\f]*(.*)")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
_WRITTEN: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_password(passfile: Path) -> bytes | None:
    """Return the password in UTF-8.

    None where the passfile has no such line, or an empty one. Of several lines the last counts.

    :raises CertificateFileError: the passfile cannot be read, is not its owner's alone, or is not
        in UTF-8.
    """
    data = read(passfile)
    mode = stat.S_IMODE(passfile.stat().st_mode)
    if mode & 0o077:
        raise CertificateFileError(
            passfile, f"has mode {mode:04o}; expected 0600, for it holds passwords"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CertificateFileError(passfile, "expected text in UTF-8") from error
    password = ""
    for line in re.split(r"\r\n|\r|\n", text):
        match = _LINE.fullmatch(line)
        if match is not None:
            password = _ESCAPE.sub(_unescaped, match[1])
    try:
        # Two \u escapes of a surrogate pair are one character, as they are to Java.
        return password.encode("utf-16", "surrogatepass").decode("utf-16").encode() or None
    except UnicodeDecodeError as error:
        raise CertificateFileError(
            passfile, f"{PASSWORD_NAME} has half a surrogate pair"
        ) from error


def _unescaped(match: re.Match[str]) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    return _WRITTEN.get(match[2], match[2])


if __name__ == "__main__":
    main()
