"""Files of certificates that change are read again, in pairs that fit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from certs.contexts import ServerContextFactory, ServerFiles
from certs.files import write_private
from certs.keystore import KeyStore
from certs.watch import CertificateWatch
from tests.logged import logged_lines

EVERY_S = 60.0


class Watched:
    """A server's certificate that is looked at each minute."""

    def __init__(self, folder: Path) -> None:
        self.store = KeyStore(folder)
        self.issue()
        self.contexts = ServerContextFactory(
            ServerFiles(self.store.server_certificate, self.store.server_key)
        )
        self.read = 0
        self.clock = Clock()
        files = [self.store.server_certificate, self.store.server_key]
        self.watch = CertificateWatch(self.clock, EVERY_S, files, self._reload)
        self.watch.start()

    def _reload(self) -> None:
        self.contexts.reload()
        self.read += 1

    def issue(self) -> None:
        now = datetime.now(UTC)
        if not self.store.authority_certificate.exists():
            self.store.create_authority("an authority", now)
        self.store.issue_server("localhost", now, ["localhost"], [], force=True)

    def look(self) -> list[str]:
        with logged_lines(lambda event: event.get("event") == "configuration.refused") as lines:
            self.clock.advance(EVERY_S)
        return lines


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "tls")


def test_what_does_not_change_is_not_read(watched: Watched) -> None:
    assert watched.look() == []
    assert watched.read == 0
    watched.issue()
    watched.look()
    watched.look()
    assert watched.read == 1


def test_a_pair_of_which_one_is_there_is_no_error(watched: Watched) -> None:
    store = watched.store
    old = store.server_key.read_bytes()
    watched.issue()
    new = store.server_key.read_bytes()
    write_private(store.server_key, old)
    context = watched.contexts.getContext()
    assert watched.look() == []
    assert watched.contexts.getContext() is context
    write_private(store.server_key, new)
    assert watched.look() == []
    assert watched.contexts.getContext() is not context


@pytest.mark.parametrize(
    "spoil",
    [
        lambda store: write_private(store.server_key, b"nothing"),
        lambda store: store.server_certificate.unlink(),
    ],
)
def test_what_cannot_be_used_is_told_once(
    watched: Watched, spoil: Callable[[KeyStore], None]
) -> None:
    context = watched.contexts.getContext()
    spoil(watched.store)
    assert watched.look() == []
    (line,) = watched.look()
    assert "certificates stay as they were, until their files change again: " in line
    assert watched.look() == []
    assert watched.contexts.getContext() is context
    watched.issue()
    assert watched.look() == []
    assert watched.read == 1
    # The next trouble is told, too.
    spoil(watched.store)
    watched.look()
    assert len(watched.look()) == 1


def test_what_was_asked_for_is_not_read_again(watched: Watched) -> None:
    watched.issue()
    watched.watch.seen()
    watched.look()
    assert watched.read == 0


def test_it_ends_and_can_be_off(watched: Watched, tmp_path: Path) -> None:
    watched.watch.stop()
    watched.watch.stop()
    assert watched.clock.getDelayedCalls() == []
    off = CertificateWatch(watched.clock, 0, [tmp_path], lambda: None)
    off.start()
    assert watched.clock.getDelayedCalls() == []
