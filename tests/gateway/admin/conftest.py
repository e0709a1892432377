"""A gateway with bridges that runs as a process of its own, one for all tests of a module.

The module says what it has: ``FILES``, the XML file of each bridge by its name, in which ``{port}``
is a port where nobody listens and ``{stomp}`` that of the gateway's own STOMP bridge; and where it
has some, ``SETTINGS``, more settings of the gateway, and ``TRANSFORMERS``, the modules of message
transformers by their names. Its ``prepare``, if it has one, is called with the instance's directory before the gateway is started.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]

from tests.gateway.admin import administered
from tests.gateway.admin.live import Live
from tests.gateway_process import GatewayProcess, free_port


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GatewayProcess, Path]]:
    folder = tmp_path_factory.mktemp("live")
    bridges: dict[str, str] = request.module.FILES
    transformers: dict[str, str] = getattr(request.module, "TRANSFORMERS", {})
    (folder / "var/lib/ext").mkdir(parents=True)
    for name, text in transformers.items():
        (folder / f"var/lib/ext/{name}.py").write_text(text)
    gateway = GatewayProcess(folder / "var")
    settings = {"imq.bridge.activelist": ",".join(["stomp", *bridges])}
    for name, text in bridges.items():
        file = folder / f"{name}.xml"
        file.write_text(
            text.replace("{port}", str(free_port())).replace("{stomp}", str(gateway.port))
        )
        # It may have a password.
        file.chmod(0o600)
        settings |= {f"imq.bridge.{name}.type": "jms", f"imq.bridge.{name}.xmlurl": str(file)}
    more: dict[str, str] = getattr(request.module, "SETTINGS", {})
    gateway.settings |= settings | more
    prepare = getattr(request.module, "prepare", None)
    if prepare is not None:
        prepare(gateway.directory)
    with gateway:
        gateway.wait_for_output("is ready")
        yield gateway, folder


@pytest.fixture
def live(running: tuple[GatewayProcess, Path], capsys: pytest.CaptureFixture[str]) -> Live:
    return Live(*running, capsys)


@pytest_twisted.async_yield_fixture
async def imq(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[administered.Live]:
    async with administered.running(tmp_path, capsys) as live:
        yield live
