"""What of a configuration is secret."""

from __future__ import annotations

import pytest

from bridge.config.model import Bridge, ConnectionFactory
from bridge.config.secrets import secrets_in, usernames_in


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("java.naming.security.credentials", "hunter2", ["hunter2"]),
        ("java.naming.provider.url", "tcp://user:hunter2@host:61616", ["hunter2"]),
        (
            "java.naming.provider.url",
            "failover:(tcp://a:1,tcp://b:2)?jms.userName=u&jms.password=hunter2",
            ["hunter2"],
        ),
        (
            "java.naming.provider.url",
            "failover:(tcp://a:1?x.password=hunter2)?jms.password=hunter3",
            ["hunter2", "hunter3"],
        ),
        ("java.naming.provider.url", "tcp://host:61616?wireFormat.maxInactivityDuration=0", []),
        ("queue.orders", "orders", []),
    ],
)
def test_passwords_of_urls_are_secrets_too(name: str, value: str, secret: list[str]) -> None:
    assert secrets_in(name, value) == secret
    bridge = Bridge(
        "b",
        connection_factories=(ConnectionFactory("f", lookup_name="x", properties={name: value}),),
    )
    assert bridge.secrets() == frozenset(secret)


@pytest.mark.parametrize(
    ("name", "value", "names"),
    [
        ("imqDefaultUsername", "ann", ["ann"]),
        ("java.naming.security.principal", "cn=ann", ["cn=ann"]),
        ("java.naming.provider.url", "tcp://ann:hunter2@host:61616", ["ann"]),
        (
            "java.naming.provider.url",
            "failover:(tcp://a:1,tcp://b:2)?jms.userName=ann&jms.password=hunter2",
            ["ann"],
        ),
        ("java.naming.security.credentials", "hunter2", []),
        ("queue.orders", "orders", []),
    ],
)
def test_names_of_users_are_known_where_their_passwords_are(
    name: str, value: str, names: list[str]
) -> None:
    assert usernames_in(name, value) == names
    factory = ConnectionFactory(
        "f", lookup_name="x", username="bob", password="b", properties={name: value}
    )
    assert Bridge("b", connection_factories=(factory,)).usernames() == {"bob", *names}
