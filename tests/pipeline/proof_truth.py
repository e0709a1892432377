"""The truth that the pipeline's answers are compared with: what became of each message.

Owns its form. Who knows it is :mod:`tests.pipeline.proof_rig`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fate:
    """What became of one message.

    :param queue: where it was sent. :param outcome: as journeys call it. :param attempts: how often
        it was handed out; several numbers where nobody can know.
    """

    queue: str
    body: str
    outcome: str
    attempts: tuple[int, ...] = (1,)


@dataclass
class Truth:
    """What was done.

    :ivar fates: of each message, by its id. :ivar clean_until: a time before which nothing went
        wrong.
    :ivar twice: ids at the source of what lies twice at a link's target, by link.
    """

    fates: dict[str, Fate] = field(default_factory=dict)
    clean_until: str = ""
    twice: dict[str, set[str]] = field(default_factory=dict)

    def ids(self, queue: str, word: str = "", outcome: str = "") -> set[str]:
        """Of messages sent to a queue, those whose body begins with a word, and with an outcome."""
        return {
            id
            for id, fate in self.fates.items()
            if fate.queue == queue
            and fate.body.startswith(word)
            and fate.outcome.startswith(outcome)
        }

    def note(self, queue: str, ids: dict[str, str], outcome: str, *attempts: int) -> None:
        """:param ids: bodies by id."""
        for id, body in ids.items():
            self.fates[id] = Fate(queue, body, outcome, attempts or (1,))
