"""Who is logged in to the console.

Owns the sessions: how long each lasts, and what proves that a request belongs to one. A session ends
at the latest after its life, after it was idle too long, at log-out, when its user is let in no
more, and with the process. Only hashes of the tokens that browsers hold are kept.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from gateway.admin.service.roles import Identity, Role

#: Sessions there may be; the one that was used longest ago goes first.
MOST_SESSIONS: Final = 500
_TOKEN_BYTES: Final = 32


@dataclass(slots=True, eq=False)
class Session:
    """Somebody who is logged in.

    :param key: the hash of the browser's token.
    :param csrf: what every change must bring along, besides the cookie.
    :param host: from where they logged in.
    """

    key: bytes
    identity: Identity
    csrf: str
    host: str
    began_s: float
    used_s: float

    @property
    def user(self) -> str:
        return self.identity.user

    def proves(self, token: str) -> bool:
        """Whether this is the token that a change must bring along."""
        return hmac.compare_digest(self.csrf.encode(), token.encode("utf-8", "replace"))


class Sessions:
    """Those who are logged in.

    :param seconds: a monotonic clock.
    :param life_s: how long a session lasts at most.
    :param idle_s: how long it lasts after its user has done something.
    """

    def __init__(self, seconds: Callable[[], float], life_s: float, idle_s: float) -> None:
        self._seconds: Final = seconds
        self.life_s: Final = life_s
        self._idle_s: Final = idle_s
        #: By key, the one used longest ago first.
        self._sessions: dict[bytes, Session] = {}
        self._when_ended: list[Callable[[Session], None]] = []

    def when_ended(self, call: Callable[[Session], None]) -> None:
        """Have each session told that ends."""
        self._when_ended.append(call)

    def open(self, identity: Identity, host: str) -> tuple[str, Session]:
        """Log somebody in.

        :returns: the token for their browser, and the session.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        now_s = self._seconds()
        session = Session(
            _key(token), identity, secrets.token_urlsafe(_TOKEN_BYTES), host, now_s, now_s
        )
        while len(self._sessions) >= MOST_SESSIONS:
            self.end(next(iter(self._sessions.values())))
        self._sessions[session.key] = session
        return token, session

    def find(self, token: str) -> Session | None:
        """Return the session of a browser's token, None without one."""
        session = self._sessions.get(_key(token))
        return session if session is not None and self.role(session) is not None else None

    def use(self, session: Session) -> None:
        """Have the session last longer: its user did something."""
        session.used_s = self._seconds()
        if self._sessions.pop(session.key, None) is not None:
            self._sessions[session.key] = session

    def role(self, session: Session) -> Role | None:
        """Return what the user may do now; None where the session has ended."""
        if session.key not in self._sessions:
            return None
        now_s = self._seconds()
        late = now_s >= session.began_s + self.life_s or now_s >= session.used_s + self._idle_s
        role = None if late else session.identity.now()
        if role is None:
            self.end(session)
        return role

    def end(self, session: Session) -> None:
        """Log out. Idempotent."""
        if self._sessions.pop(session.key, None) is not None:
            for call in self._when_ended:
                call(session)


def _key(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()
