"""How pytest-xdist shares tests out: by their files, and all files that need Spark as if they were one."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

from tests.spark_needs import needs_spark


class FilesAndSpark(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As ``--dist loadfile``, but for the files that share a Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "spark" if needs_spark(self.config.rootpath / file) else file
