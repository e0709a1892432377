"""The guard that keeps passcodes and passwords out of every log.

Owns what is a secret, and its replacement in an event's text and fields. Three nets, one below the
other: fields named like a secret, text that spells such a name before a value, and the very values
that are known to be secrets.

The third net is for values that stand for themselves. A password that is also a user's name, or a
plain word, cannot be taken out wherever it stands without taking names and words out of every line
of the process: ``guest`` with the password ``guest`` would be nobody. :func:`hidden_by_value`
leaves such ones out; where they are named as secrets, the first two nets have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from twisted.logger import LogEvent, formatEvent
from twisted.python.failure import Failure

from gateway.instance.settings import HIDDEN

_SECRET_NAME = re.compile(
    r"pass(?:code|word|phrase)|passwd|\bpwd\b|secret|private_?key", re.IGNORECASE
)

# "passcode:abc" is a STOMP header, whose value may hold blanks and ends with its line, or where a
# repr writes "\n" for that. 'passcode': 'abc', ('passcode', 'abc') and b"passcode", b"abc" are
# fields in a repr; password=abc is an option or a property. What is hidden already is left, so that
# the text after it stays.
_SPELLED = re.compile(
    r"""(?P<name>pass(?:code|word|phrase)s?|passwd)
        (?P<between>["']?\s*[:=,]\s*)(?!\*{8})
        (?: (?P<prefix>[bru]?)(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\])*(?P=quote)?
          | (?P<bare>(?:(?!\\[nr]|[\r\n\0]|\\x00).)+)
        )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
# Below this a secret is as short as an ordinary word, and is taken out only where it stands alone.
_SHORT = 6
# A configured secret of letters only is taken for a word below this.
_STRONG = 8


def hidden_by_value(secrets: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    """Return the configured ``secrets`` to be given to a :class:`Redaction`.

    They are all except those that are a user's name, or may be any word.

    :param names: of users, of the same configuration. A secret that equals one is left out; so is
        one of fewer than eight characters that are all letters, such as ``wrong``.
    """
    known = frozenset(names)
    return (
        secret
        for secret in secrets
        if secret not in known and (len(secret) >= _STRONG or not secret.isalpha())
    )


class Redaction:
    """Knows the secrets, and takes them out of text.

    :param secrets: values that must never be shown, such as the keystore's password.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Take ``secret`` out of all text from now on.

        An empty one is ignored.
        """
        if secret:
            self._secrets.add(secret)
            # The longest first: one secret may begin another.
            longest_first = sorted(self._secrets, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(_literal, longest_first)))

    def text(self, text: str) -> str:
        """``text`` with each secret replaced by asterisks."""
        # To look whether there is any is a hundred times cheaper than to look where.
        if self._pattern is not None and any(secret in text for secret in self._secrets):
            text = self._pattern.sub(HIDDEN, text)
        # Every name that is looked for begins with it, in whatever case.
        if "pass" in text.casefold():
            text = _SPELLED.sub(_hide, text)
        return text

    def text_of(self, event: LogEvent) -> str:
        """The text of ``event``, the traceback of its failure included, cleaned."""
        text = self.formatted(event)
        failure = event.get("log_failure")
        if isinstance(failure, Failure):
            text = f"{text}\n{failure.getTraceback().rstrip()}"
        return self.text(text)

    def formatted(self, event: LogEvent) -> str:
        """Format ``event`` without the values of fields that are named as secrets.

        It still has to go through :meth:`text`.
        """
        return formatEvent({name: _field(name, value) for name, value in event.items()})


def _literal(secret: str) -> str:
    escaped = re.escape(secret)
    return escaped if len(secret) >= _SHORT else rf"(?<!\w){escaped}(?!\w)"


def _hide(found: re.Match[str]) -> str:
    if found["bare"] is None:
        return f"{found['name']}{found['between']}{found['prefix']}{found['quote']}{HIDDEN}{found['quote']}"
    return f"{found['name']}{found['between']}{HIDDEN}"


def _field(name: str, value: Any) -> Any:
    if not name.startswith("log_") and _SECRET_NAME.search(name) is not None:
        return HIDDEN
    if isinstance(value, str):
        return value
    return _inside(value)


def _inside(value: Any) -> Any:
    """Clean headers and the like.

    They are a mapping's values under a secret name, and pairs that begin with one.
    """
    if isinstance(value, Mapping):
        return {key: HIDDEN if is_secret_name(key) else inner for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and any(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value
    ):
        pairs = [
            (pair[0], HIDDEN)
            if isinstance(pair, (list, tuple)) and len(pair) == 2 and is_secret_name(pair[0])
            else pair
            for pair in value
        ]
        return pairs if isinstance(value, list) else tuple(pairs)
    return value


def is_secret_name(name: object) -> bool:
    """Whether what is called ``name`` is a secret."""
    if isinstance(name, bytes):
        name = name.decode("latin-1")
    return isinstance(name, str) and _SECRET_NAME.search(name) is not None
