"""Passwords in the configuration, and references to the passfile.

In the place of a password, and of any value of a ``property``, there may be ``${passfile:NAME}``:
the value of the setting ``imq.bridge.config.password.NAME``, which belongs in the passfile. A
reference is the whole value. Everything else is taken literally, as in the original's files.
"""

from __future__ import annotations

import difflib
import itertools
import re
from typing import Final

_SECRETIVE: Final = ("password", "passcode", "passphrase", "passwd", "pwd", "secret", "credentials")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: Names of properties that hold a user's name, by their ends.
_NAMES: Final = ("username", "user", "login", "principal")
#: ``tcp://user:password@host`` and ``?jms.password=password``.
_USER_INFO: Final = re.compile(r"://[^/@:\s]*:([^/@\s]+)@")
_USER: Final = re.compile(r"://([^/@:\s]+):[^/@\s]+@")
_OPTION: Final = re.compile(r"[?&;]([\w.-]+)=([^&;\s)]+)")
_BEGINNING: Final = "${passfile"
_REFERENCE: Final = re.compile(r"\$\{passfile:([A-Za-z0-9._-]+)\}")


class MalformedReference(ValueError):
    """A value begins like a reference to the passfile and is malformed."""


def sounds_secret(name: str) -> bool:
    """Return whether an attribute or property of this name may hold a secret.

    A misspelled name counts, too, as its value must not be shown either.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    candidates = {name.lower(), *words, *("".join(pair) for pair in itertools.pairwise(words))}
    return any(difflib.get_close_matches(word, _SECRETIVE, n=1, cutoff=0.75) for word in candidates)


def secrets_in(name: str, value: str) -> list[str]:
    """Return the secrets in a property's value.

    They are all of it if its name says so, else the passwords in a URL.
    """
    if sounds_secret(name):
        return [value]
    found = _USER_INFO.findall(value)
    return found + [given for option, given in _OPTION.findall(value) if sounds_secret(option)]


def usernames_in(name: str, value: str) -> list[str]:
    """Return the users' names in a property's value.

    They are all of it if its name says so, else those in a URL.
    """
    if _sounds_like_a_user(name):
        return [value]
    return _USER.findall(value) + [
        given for option, given in _OPTION.findall(value) if _sounds_like_a_user(option)
    ]


def _sounds_like_a_user(name: str) -> bool:
    return name.lower().endswith(_NAMES)


def reference(value: str) -> str | None:
    """Return the NAME of ``${passfile:NAME}``; None for any other value.

    :raises MalformedReference: it begins like a reference and is malformed.
    """
    if not value.startswith(_BEGINNING):
        return None
    found = _REFERENCE.fullmatch(value)
    if found is None:
        raise MalformedReference(
            "${passfile:NAME}, where NAME has letters, digits, '.', '_' and '-'"
        )
    return found[1]
