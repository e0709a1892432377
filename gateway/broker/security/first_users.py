"""The users that a new instance begins with, and where the password of its administrator is kept.

Owns both being made together, whoever comes first: the gateway, or the command that looks after
users.
"""

from __future__ import annotations

import secrets
from typing import Final

from gateway.broker.security.users import create_default_users
from gateway.instance import passfile
from gateway.instance.layout import Layout, make_directory
from gateway.instance.settings_general import BRIDGE_ADMIN_PASSWORD

#: The passfile's names for the password of the user admin.
_ADMIN_PASSWORDS: Final = (
    "imq.imqcmd.password",
    "imq.imqbridgemgr.password",
    BRIDGE_ADMIN_PASSWORD.name,
)


def make_first_users(layout: Layout, *, shown: bool = True) -> tuple[str, ...]:
    """Make the users file of an instance that has none, with ``admin`` and ``guest``, and put
    admin's password into its passfile.

    A password that the passfile has already, of a start that was interrupted, is used again.

    :param shown: whether the lines have the password; else they say where it is.
    :returns: what was made, a line each, to be shown to whoever asked for it.
    :raises FileExistsError: there is a users file, which is left alone. :raises OSError: a file
        cannot be written.
    :raises PassfileError: there is a passfile that cannot be used.
    """
    make_directory(layout.etc)
    layout.close_to_others()
    kept = passfile.read(layout.passfile) if layout.passfile.exists() else {}
    password = kept.get(_ADMIN_PASSWORDS[0]) or secrets.token_urlsafe(18)
    passfile.update(layout.passfile, dict.fromkeys(_ADMIN_PASSWORDS, password))
    create_default_users(layout.users, password)
    return (
        f"user 'admin' has the password {password}, kept in {layout.passfile}; it is not shown again"
        if shown
        else f"the password of user 'admin' is in {layout.passfile}",
        "user 'guest' has the passcode guest, and may connect from this machine only",
    )


def password_of_admin(layout: Layout) -> str:
    """The password that the instance's passfile has for ``admin``; empty where it has none.

    :raises PassfileError: the passfile cannot be used.
    """
    return passfile.read(layout.passfile).get(_ADMIN_PASSWORDS[0], "")
