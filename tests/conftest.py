"""What all tests share: Hypothesis profiles, the ``--long`` option, free ports, gateways in child processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.crash import once_table
from tests.gateway_process import Certificates, GatewayProcess, free_port, make_certificates
from tests.needs import PARAMETER, needs_brokers, needs_spark, starts_processes

# No deadline: the first example of a test also pays for imports, and a busy machine is no defect of the code.
# The quick ones are the same at each run, so that a run fails for what was changed; it is the long ones that explore.
settings.register_profile("quick", deadline=None, max_examples=100, derandomize=True)
settings.register_profile(
    "long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)

#: Of a processor that both want it has a third of what the other has.
_GIVES_WAY: Final = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        action="store_true",
        help="also run tests marked long, and take long samples in all of Hypothesis's",
    )
    parser.addoption(
        "--crash-matrix",
        metavar="FILE",
        help="write the crash matrix of transacted links there, for the documentation",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "quick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``: the files that share what is slow to start go to the same process."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.sharing_out import BySharedServers

    return BySharedServers(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # The process that shares tests out sees their files only.
        if "spark" in getattr(item, "fixturenames", ()) and not needs_spark(item.path):
            raise pytest.UsageError(
                f"{item.path} needs the fixture spark and does not say so: a parameter is expected as {PARAMETER!r}"
            )
    # What takes longest begins first, where tests are shared out in this order.
    items.sort(
        key=lambda item: (
            not needs_spark(item.path),
            not needs_brokers(item.path),
            not starts_processes(item.path),
        )
    )
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Of tests side by side those that share a session or brokers, one after the other in a process, take longest: the others give way to them."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    if not (alone or needs_spark(item.path) or needs_brokers(item.path)):
        os.setpriority(os.PRIO_PROCESS, 0, max(_GIVES_WAY, os.getpriority(os.PRIO_PROCESS, 0)))


@pytest.fixture(name="free_port")
def free_port_fixture() -> Callable[[], int]:
    """Gives a TCP port of 127.0.0.1 where nobody listens, another one at each call."""
    return free_port


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority with a server's and a client's certificate, made once for all tests."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[..., GatewayProcess]]:
    """Starts a gateway with the options of :class:`GatewayProcess` and waits until it is ready; none outlives the test."""
    with ExitStack() as running:

        def start(varhome: Path | None = None, **options: Any) -> GatewayProcess:
            return running.enter_context(GatewayProcess(varhome or tmp_path / "var", **options))

        yield start


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    rows = once_table.rows(
        terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    )
    if rows:
        terminalreporter.section("crash matrix of transacted links")
        for line in once_table.as_text(rows):
            terminalreporter.write_line(line)
    if rows and config.getoption("--crash-matrix"):
        once_table.write(rows, Path(config.getoption("--crash-matrix")))
