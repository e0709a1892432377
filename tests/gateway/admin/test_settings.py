"""The settings of the admin service."""

from __future__ import annotations

import pytest

from gateway.admin.service.settings import SETTINGS, AdminOptions, is_loopback
from gateway.instance import settings_general
from gateway.instance.settings import SettingsError, read


def options(*overrides: str) -> AdminOptions:
    return AdminOptions.read(read([*SETTINGS, *settings_general.SETTINGS], None, overrides)[0])


def test_the_defaults_keep_it_on_this_machine() -> None:
    assert options() == AdminOptions("127.0.0.1", 7677, False, "", "", any_port=True)


def test_the_administrator_is_that_of_the_bridges() -> None:
    made = options(
        "imq.bridge.admin.user=olga", "imq.bridge.admin.password=p w", "imq.bridge.admin.port=7680"
    )
    assert (made.user, made.password, made.port) == ("olga", "p w", 7680)
    assert "p w" not in repr(made)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "broker.example"])
def test_a_network_needs_tls(host: str) -> None:
    with pytest.raises(
        SettingsError,
        match=r"imq.bridge.admin.hostname=.*expected an address of the loopback.*tls.enabled is false",
    ):
        options(f"imq.bridge.admin.hostname={host}")
    assert (
        options(f"imq.bridge.admin.hostname={host}", "imq.bridge.admin.tls.enabled=true").hostname
        == host
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost", "LOCALHOST"])
def test_the_loopback_does_not(host: str) -> None:
    assert is_loopback(host)
    assert options(f"imq.bridge.admin.hostname={host}").hostname == host
