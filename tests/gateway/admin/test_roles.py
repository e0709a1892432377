"""Which role a user has who is connected."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.admin.assembly import roles
from gateway.admin.service.roles import Role
from gateway.admin.service.settings import OPERATORS, VIEWERS
from gateway.broker.security.access import AccessRules
from gateway.broker.security.users import ELSEWHERE, Principal
from gateway.messaging.errors import AuthenticationFailed

RULES = "version=JMQFileAccessControlModel/100\nconnection.ADMIN.allow.user=alice\n"


class Repository:
    """Users, of whom those that are gone are known no more."""

    def __init__(self) -> None:
        self.gone: set[str] = set()

    def readmit(self, principal: Principal, address: str) -> Principal:
        if principal.name in self.gone:
            raise AuthenticationFailed(principal.name)
        return principal


def role_of(tmp_path: Path, principal: Principal, *gone: str) -> Role | None:
    file = tmp_path / "accesscontrol.properties"
    file.write_text(RULES)
    rules = AccessRules(file)
    rules.load()
    users: Any = Repository()
    users.gone.update(gone)
    settings: Any = {OPERATORS: ("operator",), VIEWERS: ("viewer", "auditor")}
    clock = Clock()
    clock.advance(time.time())
    _, now = roles(clock, users, rules, settings)
    return now(principal, "192.0.2.7")


@pytest.mark.parametrize(
    ("name", "groups", "role"),
    [
        ("alice", (), Role.ADMINISTRATOR),
        ("bob", ("operator", "viewer"), Role.OPERATOR),
        ("bob", ("auditor",), Role.VIEWER),
        ("bob", ("user",), None),
    ],
)
def test_rules_and_groups_give_it(
    tmp_path: Path, name: str, groups: tuple[str, ...], role: Role | None
) -> None:
    assert role_of(tmp_path, Principal(name, frozenset(groups), repository="file")) is role


def test_whom_another_broker_has_let_in_has_none(tmp_path: Path) -> None:
    assert role_of(tmp_path, Principal("alice", frozenset(), repository=ELSEWHERE)) is None


def test_it_ends_with_the_user_and_with_its_credentials(tmp_path: Path) -> None:
    alice = Principal("alice", frozenset(), repository="file")
    assert role_of(tmp_path, alice, "alice") is None
    ended = Principal("alice", frozenset(), repository="file", until=time.time() - 1)
    assert role_of(tmp_path, ended) is None
