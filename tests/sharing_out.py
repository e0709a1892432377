"""How pytest-xdist shares tests out: by their files, but those that share what is slow to start go to one process.

All files that need Spark are as if they were one, and have one session; so are those that need other brokers.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

from tests.needs import needs_brokers, needs_spark


class BySharedServers(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As ``--dist loadfile``, but for the files that share a Spark session, or brokers."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        path = self.config.rootpath / file
        if needs_spark(path):
            return "spark"
        return "brokers" if needs_brokers(path) else file
