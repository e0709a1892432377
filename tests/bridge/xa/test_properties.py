"""``imq.bridge.tm.props`` and ``imq.bridge.NAME.tm.props``."""

from __future__ import annotations

import pytest

from bridge.settings import BRIDGE_TM_PROPS, TM_PROPS
from bridge.xa.opening import IGNORED, TransactionProperties
from gateway.configuration import DECLARED
from gateway.instance.settings import SettingsError, Severity, read


def properties(*given: str) -> tuple[TransactionProperties, list[str]]:
    settings, _ = read(DECLARED, None, given)
    found, warnings = TransactionProperties.read(settings, "mq")
    assert all(warning.severity is Severity.WARNING for warning in warnings)
    return found, [str(warning) for warning in warnings]


def test_they_are_declared() -> None:
    assert {TM_PROPS, BRIDGE_TM_PROPS} <= set(DECLARED)


def test_defaults() -> None:
    assert properties() == (TransactionProperties(1_024_000, True), [])
    assert properties("imq.bridge.tm.props=", "imq.bridge.mq.tm.props= , ") == (
        TransactionProperties(),
        [],
    )


def test_the_bridges_own_win() -> None:
    found, _ = properties(
        "imq.bridge.tm.props=txlogSize=2m, txlogSync=false", "imq.bridge.mq.tm.props=txlogSize = 8k"
    )
    assert found == TransactionProperties(8192, False)
    found, _ = properties(
        "imq.bridge.tm.props=txlogSync=false", "imq.bridge.mq.tm.props=txlogSync=true"
    )
    assert found == TransactionProperties()
    found, _ = properties("imq.bridge.other.tm.props=txlogSync=false")
    assert found == TransactionProperties()


def test_without_syncs_there_is_a_warning() -> None:
    for name in ("imq.bridge.tm.props", "imq.bridge.mq.tm.props"):
        (warning,) = properties(f"{name}=txlogSync=false")[1]
        assert name in warning
        assert "lose" in warning


@pytest.mark.parametrize("key", IGNORED)
def test_the_originals_other_keys_are_ignored_with_a_warning(key: str) -> None:
    found, (warning,) = properties(f"imq.bridge.mq.tm.props={key}=5")
    assert found == TransactionProperties()
    assert key in warning
    assert "no effect" in warning


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("txlogSize", "KEY=VALUE"),
        ("=5", "KEY=VALUE"),
        ("txlogSize=5", "1k"),
        ("txlogSize=many", "txlogSize"),
        ("txlogSync=maybe", "txlogSync"),
        ("txLogSize=5k", "the nearest is txlogSize"),
        ("txlogSize=5k;txlogSync=true", "txlogSize"),
    ],
)
@pytest.mark.parametrize("name", ["imq.bridge.tm.props", "imq.bridge.mq.tm.props"])
def test_what_is_wrong_is_an_error_of_the_bridge(name: str, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        properties(f"{name}={text}")
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert all(problem.severity is Severity.BRIDGE for problem in caught.value.problems)
