"""Who administers: the users of group ``admin``, as the users file has it now."""

from __future__ import annotations

from pathlib import Path

import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor

from tests.gateway.broker.brokers import Deployment


@pytest_twisted.ensureDeferred
async def test_those_in_the_group_do_as_long_as_they_are_in_it(tmp_path: Path) -> None:
    deployment = Deployment(reactor, tmp_path, "memory")
    # Each user's name is a group that it is in.
    admin, guest = [(await deployment.connect(user)).connection for user in ("admin", "guest")]
    assert (admin.administers, guest.administers) == (True, False)
    deployment.users.groups.update(admin=frozenset({"staff"}), guest=frozenset({"staff", "admin"}))
    deployment.provider.readmit()
    assert (admin.administers, guest.administers) == (False, True)
    await deployment.close()
