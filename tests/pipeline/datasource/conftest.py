"""One gateway for the tests of the data source, with TLS, one queue that nobody may use, and one
that nobody may browse.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.datasource.source import register
from tests.gateway_process import Certificates, GatewayProcess
from tests.pipeline.datasource.brokers import Broker
from tests.pipeline.datasource.crashing import CrashingSource

_RULES = """
version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
connection.ADMIN.allow.group=admin
queue.create.allow.user=*
topic.create.allow.user=*
queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.browse.allow.user=*
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
queue.secret.consume.deny.user=*
queue.secret.browse.deny.user=*
queue.secret.produce.deny.user=*
queue.unseen.browse.deny.user=*
"""


@pytest.fixture(scope="session")
def gateway_process(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[GatewayProcess]:
    """A gateway for whoever shares it; it keeps what others have left in their queues."""
    process = GatewayProcess(
        tmp_path_factory.mktemp("gateway") / "var",
        tls=certificates,
        require_client_certificate=True,
    )
    rules = process.directory / "etc" / "accesscontrol.properties"
    rules.parent.mkdir(parents=True)
    rules.write_text(_RULES)
    with process:
        yield process


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """The shared session, which knows the data source, and one that can be told where to end."""
    register(spark)
    spark.dataSource.register(CrashingSource)
    return spark


@pytest.fixture
def gateway(gateway_process: GatewayProcess, tmp_path: Path) -> Broker:
    """The shared gateway, with queues that no other test uses."""
    passcode = tmp_path / "passcode"
    passcode.write_text("guest\n")
    return Broker(gateway_process.port, {"login": "guest", "passcodeFile": str(passcode)})
