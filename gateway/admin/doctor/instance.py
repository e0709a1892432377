"""Checks of an instance's files: secrets, certificates, settings.

They block, and are for a thread.
"""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from certs.files import CertificateFileError
from certs.keystore import KeyStore, ending, revoked_in_use
from gateway.admin.doctor.finding import Finding, Severity
from gateway.broker.security.access import AccessError, AccessRules
from gateway.broker.security.passcodes import is_passcode_of
from gateway.broker.security.users import UsersError, read_users
from gateway.instance.layout import Layout
from gateway.instance.problems import counted

#: Users that everybody knows, with the passcodes that everybody knows.
_WELL_KNOWN: Final = (("guest", "guest"), ("admin", "admin"))
_ENDS_SOON: Final = timedelta(days=30)
#: Warnings of settings that are told one by one.
_TOLD: Final = 20


def permissions(layout: Layout, passfile: Path | None) -> Iterator[Finding]:
    """Look who may read files with secrets, and change those that give rights.

    :param passfile: the one in use.
    """
    secret = [layout.users, *sorted(layout.tls.glob("*.key"))]
    if passfile is not None:
        secret.insert(0, passfile)
    good = bad = 0
    for path in secret:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            bad += 1
            yield Finding("permissions", Severity.ERROR, f"{path}: {error.strerror}")
            continue
        if mode & 0o077:
            bad += 1
            # The hashes of passcodes are no passcodes; who can write them needs none.
            only_hashes = path == layout.users and not mode & 0o022
            severity = Severity.WARNING if only_hashes else Severity.ERROR
            yield Finding(
                "permissions",
                severity,
                f"others than its owner may use {path}",
                f"mode {mode:04o}",
                f"chmod 600 {shlex.quote(str(path))}",
            )
        else:
            good += 1
    for path in (layout.settings, layout.access_control):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o022:
                bad += 1
                yield Finding(
                    "permissions",
                    Severity.ERROR,
                    f"others than its owner may change {path}",
                    f"mode {mode:04o}",
                    f"chmod go-w {shlex.quote(str(path))}",
                )
    if not bad:
        yield Finding(
            "permissions",
            Severity.OK,
            "files with secrets are their owner's alone",
            counted(good, "file"),
        )


def passwords(layout: Layout, admin: tuple[str, str], exposed: Sequence[str]) -> Iterator[Finding]:
    """Look for users with passcodes that everybody knows.

    :param admin: ``imq.bridge.admin.user`` and its password.
    :param exposed: services that others than this machine can reach.
    """
    severity = Severity.ERROR if exposed else Severity.WARNING
    where = f", and {', '.join(exposed)} can be reached from other machines" if exposed else ""
    found = 0
    try:
        users = read_users(layout.users)
    except (UsersError, OSError) as error:
        yield Finding("passwords", Severity.ERROR, str(error))
        return
    for name, passcode in _WELL_KNOWN:
        user = users.get(name)
        if user is None or not user.active or user.loopback:
            continue
        if is_passcode_of(user.hash, passcode):
            found += 1
            yield Finding(
                "passwords",
                severity,
                f"user '{name}' has the passcode '{passcode}'{where}",
                "",
                f"imqusermgr update -u {name} {_where(layout)}",
            )
    if admin[0] and admin[1] in ("admin", admin[0]):
        found += 1
        yield Finding(
            "passwords",
            severity,
            f"the password of '{admin[0]}' in the passfile is '{admin[1]}'{where}",
            "",
            "change imq.bridge.admin.password in the passfile, and restart",
        )
    if not found:
        yield Finding("passwords", Severity.OK, "no user of other machines has a default passcode")


def certificates(layout: Layout, now: datetime | None = None) -> Iterator[Finding]:
    """Look for certificates and revocation lists that end within 30 days."""
    store = KeyStore(layout.tls)
    remedies = {
        "crl": "crl",
        "ca": "renew ca",
        "server": "renew server",
    }
    try:
        near = ending(store, now or datetime.now(UTC), _ENDS_SOON)
        revoked = revoked_in_use(store)
        count = len(store.entries())
    except CertificateFileError as error:
        yield Finding(
            "certificates", Severity.ERROR, str(error), "", f"imqkeytool list {_where(layout)}"
        )
        return
    for each in near:
        over = each.left <= timedelta(0)
        # A client's is its user's own trouble.
        serving = each.name in remedies
        yield Finding(
            "certificates",
            Severity.ERROR if over and serving else Severity.WARNING,
            str(each),
            counted(each.left.days, "day"),
            f"imqkeytool {remedies.get(each.name, f'renew {shlex.quote(each.name)}')} {_where(layout)}",
        )
    for gone in revoked:
        yield Finding(
            "certificates",
            Severity.ERROR,
            str(gone),
            "",
            f"imqkeytool server --force {_where(layout)}",
        )
    if not near and not revoked:
        text = "no certificate ends within 30 days" if count else "there are no certificates"
        yield Finding("certificates", Severity.OK, text, f"{count} certificates")


def rules(layout: Layout) -> Iterator[Finding]:
    """Read the access rules as they are now."""
    try:
        AccessRules(layout.access_control).load()
    except (AccessError, OSError) as error:
        edit = f"$EDITOR {shlex.quote(str(layout.access_control))}"
        text = f"the next start and SIGHUP refuse the access rules: {error}"
        yield Finding("rules", Severity.ERROR, text, "", edit)
    else:
        yield Finding("rules", Severity.OK, "the access rules can be read")


def settings(warnings: Iterable[str], file: Path, refused: Iterable[str] = ()) -> Iterator[Finding]:
    """Tell of settings that have no effect or another one than was meant.

    :param warnings: of reading them.
    :param refused: what is wrong with them as they are now.
    """
    told = list(warnings)
    wrong = list(refused)
    for text in wrong[:_TOLD]:
        text = f"the next start and SIGHUP refuse this: {text}"
        yield Finding("settings", Severity.ERROR, text, "", f"$EDITOR {shlex.quote(str(file))}")
    for text in told[:_TOLD]:
        yield Finding("settings", Severity.WARNING, text, "", f"$EDITOR {shlex.quote(str(file))}")
    if len(told) > _TOLD:
        yield Finding(
            "settings",
            Severity.WARNING,
            "there are more such settings, which the log of the last start has",
            str(len(told) - _TOLD),
        )
    if not told and not wrong:
        yield Finding("settings", Severity.OK, "all settings are known and supported")


def _where(layout: Layout) -> str:
    """Which instance a command is for."""
    varhome, name = shlex.quote(str(layout.varhome.absolute())), shlex.quote(layout.instance)
    return f"--varhome {varhome} --instance {name}"
