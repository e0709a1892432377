"""An ActiveMQ whose queues become full: its file, and how its queues hold producers back."""

from __future__ import annotations

import os
import shutil
from typing import Final

from benchmarks.peers import NotInstalled
from benchmarks.process import ProcessTree
from tests.servers import ActiveMQ

_FILE: Final = """\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="\
    http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="full" useJmx="false" dataDirectory="{data}">
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue=">" producerFlowControl="true" memoryLimit="{limit}" cursorMemoryHighWaterMark="{mark}">
        <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
      </policyEntry>
    </policyEntries></policyMap></destinationPolicy>
    <persistenceAdapter><kahaDB directory="{data}/kahadb"/></persistenceAdapter>
    <systemUsage><systemUsage sendFailIfNoSpace="{fails}">
      <memoryUsage><memoryUsage limit="64 mb"/></memoryUsage>
      <storeUsage><storeUsage limit="256 mb"/></storeUsage>
      <tempUsage><tempUsage limit="64 mb"/></tempUsage>
    </systemUsage></systemUsage>
    <transportConnectors>{connectors}</transportConnectors>
  </broker>
</beans>
"""


class FullActiveMQ(ActiveMQ):
    """Its queues take about 1 MiB each.

    Then a send waits, as ActiveMQ has it by default.
    """

    fails = False

    def _launch(self) -> ProcessTree:
        java = shutil.which("java")
        if java is None:
            raise NotInstalled("Java is missing: apt-get install default-jre-headless")
        connectors = "".join(
            f'<transportConnector name="c{number}" uri="{uri}"/>'
            for number, uri in enumerate(self.listeners())
        )
        path = self.folder / "full.xml"
        path.write_text(
            _FILE.format(
                data=self.folder / "data",
                limit="1mb",
                mark=70,
                fails=str(self.fails).lower(),
                connectors=connectors,
            )
        )
        library = "/usr/share/activemq/lib"
        arguments = [
            java,
            *self.options,
            "-cp",
            f"{library}/*:{library}/optional/*",
            *self.main(),
            f"xbean:file:{path}",
        ]
        return ProcessTree(arguments, os.environ, self.folder, self.log)


class RefusingActiveMQ(FullActiveMQ):
    """Its queues take about 1 MiB each.

    Then a send fails: ``sendFailIfNoSpace``.
    """

    fails = True
