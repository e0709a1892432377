"""What all tests share: Hypothesis profiles, the ``--long`` option, free ports, gateways in child
processes, databases of PostgreSQL.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests import tiers
from tests.crash import once_table
from tests.gateway_process import Certificates, GatewayProcess, free_port, make_certificates
from tests.takeover import table as takeover_table

if TYPE_CHECKING:
    from tests.postgresql import Cluster

# No deadline: the first example of a test also pays for imports, and a busy machine is no defect of
# the code. The quick ones are the same at each run, so that a run fails for what was changed; it is
# the long ones that explore.
settings.register_profile("small", deadline=None, max_examples=15, derandomize=True)
settings.register_profile("usual", deadline=None, max_examples=100, derandomize=True)
settings.register_profile(
    "long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)

#: Of a processor that both want it has a third of what the other has.
_GIVES_WAY: Final = 5
#: What a test is called by may have that many characters of one argument. pytest spells arguments
#: out, however large, and pytest-xdist passes these names about.
_NAME_LIMIT: Final = 80
#: So many collections of the middle generation come before a full one.
_FULL_COLLECTIONS: Final = 100
#: Whether this run is of the quick tier.
_QUICK: Final = pytest.StashKey[bool]()
_needs: Final = tiers.Needs()


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
    for name, meaning in tiers.MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    worker = getattr(config, "workerinput", None)
    config.stash[_QUICK] = _names_nothing(config) if worker is None else worker["quick"]
    if config.stash[_QUICK] and worker is None:
        tiers.keep_files_in_memory()
    usual = "long" if config.getoption("--long") else "small" if config.stash[_QUICK] else "usual"
    settings.load_profile(config.getoption("--hypothesis-profile") or usual)


def _names_nothing(config: pytest.Config) -> bool:
    return config.args_source is not pytest.Config.ArgsSource.ARGS and not config.getoption(
        "--long"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Share the quick tier out; a test that is named runs in this process, for the debugger."""
    return tiers.quick_workers() if _names_nothing(config) else 0


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist the tier: it is given paths even where none were named."""
    node.workerinput["quick"] = node.config.stash[_QUICK]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Keep the quick tier from importing what others need: Spark, or a library of plots."""
    if not config.stash[_QUICK]:
        return None
    if tiers.folder_mark(collection_path.relative_to(config.rootpath).as_posix()):
        return True
    is_file = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_file and tiers.file_mark(collection_path.read_text("utf-8")) else None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Call a long argument by the name of its parameter; pytest numbers those that are equal."""
    return argname if isinstance(val, str | bytes) and len(val) > _NAME_LIMIT else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Spare the collector of garbage what stays: it would walk all tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        if session.config.stash[_QUICK]:
            # Also what the tests leave: the run is over before its garbage is much.
            young, middle, _ = gc.get_threshold()
            gc.set_threshold(young, middle, _FULL_COLLECTIONS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the tier has not.

    First, because pytest-xdist then reads the groups.
    """
    for item in items:
        tiers.mark(item, config.rootpath)
    if config.stash[_QUICK]:
        wanted = [item for item in items if tiers.is_quick(item)]
    elif config.getoption("--long"):
        wanted = items[:]
    else:
        wanted = [item for item in items if not item.get_closest_marker(tiers.LONG)]
    kept = set(wanted)
    if left_out := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=left_out)
    items[:] = sorted(wanted, key=tiers.begins)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Have other tests give way to those that share a session or brokers, which take longest."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    if not alone and tiers.begins(item) > 1:
        os.setpriority(os.PRIO_PROCESS, 0, max(_GIVES_WAY, os.getpriority(os.PRIO_PROCESS, 0)))
    with _needs.none(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with _needs.none(item):
        return (yield)


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
    """Starts a gateway with the options of :class:`GatewayProcess` and waits until it is ready;
    none outlives the test.
    """
    with ExitStack() as running:

        def start(varhome: Path | None = None, **options: Any) -> GatewayProcess:
            return running.enter_context(GatewayProcess(varhome or tmp_path / "var", **options))

        yield start


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Cluster]:
    """The server of PostgreSQL that the tests of a worker share.

    No test may stop it: see ``postgresql_cluster``.
    """
    # Here, because the quick tier needs no client of PostgreSQL.
    from tests.postgresql import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def postgresql_database(postgresql: Cluster) -> Iterator[str]:
    """The URL of an empty database, which is dropped after the test."""
    url = postgresql.database()
    yield url
    postgresql.drop(url)


@pytest.fixture
def postgresql_cluster() -> Iterator[Cluster]:
    """A running server of PostgreSQL that belongs to this test.

    The test may stop and kill it, and give it a standby.
    """
    from tests.postgresql import Cluster

    with Cluster() as cluster:
        yield cluster


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    if takeovers := takeover_table.lines(reports):
        terminalreporter.section("takeovers")
        for line in takeovers:
            terminalreporter.write_line(line)
    rows = once_table.rows(reports)
    if rows:
        terminalreporter.section("crash matrix of transacted links")
        for line in once_table.as_text(rows):
            terminalreporter.write_line(line)
    if rows and config.getoption("--crash-matrix"):
        once_table.write(rows, Path(config.getoption("--crash-matrix")))
