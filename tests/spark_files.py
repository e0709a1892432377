"""How pytest-xdist shares tests out: by their files, and all files that need Spark as if they were two: those of the jobs, and the others, which take as long."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

from tests.spark_needs import needs_spark


class FilesAndSpark(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As ``--dist loadfile``, but for the files that share a Spark session: one for each of the two."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        if not needs_spark(self.config.rootpath / file):
            return file
        return "spark, jobs" if "/jobs/" in file else "spark"
