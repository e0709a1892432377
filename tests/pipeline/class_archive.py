"""An archive of the classes that Spark has for the jobs.

Its Java machines map it into their memory, which takes a third off a short session.

Owns where it is, and how it is made: by ``python -m tests.pipeline.class_archive``, once after
PySpark was installed. Java that it does not fit loads its classes as ever.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

_ARCHIVE: Final = Path(__file__).parents[2] / "build" / "spark.jsa"


def java_options() -> str:
    """What a Java machine is told of it; of one that does not fit it says nothing."""
    return (
        f'"-XX:SharedArchiveFile={_ARCHIVE}" -Xlog:disable -Xlog:all=error:stderr'
        if _ARCHIVE.exists()
        else ""
    )


def _make(folder: Path, archive: Path) -> None:
    from pipeline.jobs import ingest, journeys
    from pipeline.output import Output
    from pipeline.session import spark_session
    from tests.pipeline.conftest import QUICK, SHORT, options
    from tests.pipeline.generated import write_journal

    write_journal(folder / "journal", 500)
    making = f'{QUICK} "-XX:ArchiveClassesAtExit={archive}"'
    session = options(folder, **{**SHORT, "spark.driver.extraJavaOptions": making})
    with spark_session("class archive", session) as spark:
        ingest.run(spark, [str(folder / "journal")], str(folder / "table"))
        journeys.run(spark, [str(folder / "table")], Output(str(folder / "found")))


def main() -> None:
    _ARCHIVE.parent.mkdir(exist_ok=True)
    # Whoever heeds one cannot make one.
    _ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        made = Path(folder) / _ARCHIVE.name
        _make(Path(folder), made)
        if made.exists():
            made.replace(_ARCHIVE)
        else:
            print(
                "This Java keeps no archive of its classes; the tests of the pipeline take longer without."
            )


if __name__ == "__main__":
    main()
