"""How long a client may be silent, by Artemis' rules.

Owns what ``connectionTtl`` and its like of an acceptor come to: how often a client is asked for
octets, and after how long a silence it is ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What a client that promises nothing is asked by, where it may be silent for ever: Artemis' own.
_USUAL_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Lifetime:
    """What an operator says of it, in milliseconds.

    :param unpromised: how long a client may be silent that has promised nothing; 0 for ever.
    :param shortest: and
    :param longest: bounds for those that have promised heart-beats; the second is 0 for none.
    :param factor: how many of its own intervals such a client may be silent.
    """

    unpromised: int = 0
    shortest: int = 1000
    longest: int = 0
    factor: float = 2.0

    @property
    def wanted(self) -> int:
        """How often CONNECTED asks for octets of a client that promises none."""
        return int((self.unpromised or _USUAL_MS) / self.factor)

    def promised(self, interval: int) -> tuple[int, int]:
        """Return how often octets are asked for, and the longest silence.

        :param interval: at which the client can send them; not 0.
        """
        silence = int(interval * self.factor)
        bounded = max(silence, self.shortest)
        if self.longest:
            bounded = min(bounded, self.longest)
        return (interval if bounded == silence else int(bounded / self.factor)), bounded
