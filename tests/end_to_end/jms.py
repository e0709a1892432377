"""A JMS client that is not ours: the cookbook's ``Jms.java`` on ActiveMQ's own classes, one process
for many commands.
"""

from __future__ import annotations

import atexit
import functools
import subprocess

from tests.end_to_end.sessions import COOKBOOK
from tests.gateway_process import HOST
from tests.servers import activemq


class JmsClient:
    """A connection to an ActiveMQ, made when the first command is given."""

    def __init__(self, port: int) -> None:
        command = [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            "/usr/share/activemq/lib/*",
            "Jms.java",
            f"tcp://{HOST}:{port}",
        ]
        self._process = subprocess.Popen(
            command,
            cwd=COOKBOOK,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, *words: str) -> list[str]:
        """One command, as the file describes them.

        :returns: the lines that it prints.
        :raises AssertionError: it fails.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\t".join(words) + "\n")
        stdin.flush()
        lines = []
        while line := stdout.readline().rstrip("\n"):
            assert not line.startswith("error: "), f"{' '.join(words)}: {line}"
            lines.append(line)
        assert self._process.poll() is None, f"{' '.join(words)}: it ended"
        return lines

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@functools.cache
def jms_client() -> JmsClient:
    """The one of this test run, at its ActiveMQ."""
    client = JmsClient(activemq().openwire_port)
    atexit.register(client.close)
    return client
