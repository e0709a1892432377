"""One gateway for all hostile clients of a module: whatever they do to it, it must be there for the
next.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.waiting import log_of
from tests.gateway_process import Certificates, GatewayProcess
from tests.hostile.bystander import Bystander

#: Short, so that the tests of limits are; none is shorter than what an honest client on a busy
#: machine needs.
SETTINGS = {
    "imq.bridge.stomp.connect.timeout": "3",
    "imq.bridge.stomp.limit.connections": "60",
    "imq.bridge.stomp.limit.body": "1m",
}


@pytest.fixture(scope="package")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("hostile"), tls=certificates, settings=SETTINGS
    ) as gateway:
        yield gateway
        assert gateway.terminate() == 0, gateway.said
        log = log_of(gateway)
        assert "Traceback" not in log, log


@pytest.fixture
def bystander(gateway: GatewayProcess) -> Iterator[Bystander]:
    with Bystander(gateway.port) as bystander:
        yield bystander
