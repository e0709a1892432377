"""The data source ``stomp``, as Spark knows it.

Owns its name and which reader or writer serves what. In the package ``pyspark-stomp`` Spark finds it
by itself; else register it once for each session::

    from pipeline.datasource.source import register
    register(spark)
    spark.read.format("stomp").option("destination", "queue:orders").load()

Spark finds readers and writers by importing them in its Python workers, so this package must be
installed wherever they run: on a cluster in the environment that ``PYSPARK_PYTHON`` names, or as an
archive that ``spark-submit --archives`` brings. ``--py-files`` with a zip file of the packages does
as well where the workers have pyarrow; a wheel does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.columns import MESSAGES
from pipeline.datasource.batch_reader import FilteringBrowser, StompBrowser, StompConsumer
from pipeline.datasource.options import Use, parse, parse_reading
from pipeline.datasource.rows import schema_with
from pipeline.datasource.stream_reader import StompStreamReader
from pipeline.datasource.writer import StompStreamWriter, StompWriter
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StompDataSource(DataSource):
    """STOMP destinations as tables; see ``docs/pipeline_source.rst``."""

    @classmethod
    def name(cls) -> str:
        return "stomp"

    def schema(self) -> str:
        """Return the columns.

        ``load()`` calls this, so options that are wrong for every read fail there.
        """
        properties = parse_reading(self.options).properties
        return ", ".join([MESSAGES, *[f"`{name}` {kind}" for name, kind in properties.items()]])

    def reader(self, schema: StructType) -> DataSourceReader:
        consumes = self.options.get("browse", "true").strip().lower() == "false"
        options = parse(self.options, Use.CONSUME if consumes else Use.BROWSE)
        _check_schema(schema, options.properties)
        if consumes:
            return StompConsumer(options)
        return FilteringBrowser(options) if options.push_filters else StompBrowser(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse(self.options, Use.STREAM)
        _check_schema(schema, options.properties)
        return StompStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return StompWriter(parse(self.options, Use.WRITE), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StompStreamWriter(parse(self.options, Use.WRITE), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Have this session know the format ``stomp``."""
    spark.dataSource.register(StompDataSource)


def _check_schema(schema: StructType, properties: Mapping[str, str]) -> None:
    # As Spark compares them later, when messages have been consumed.
    expected = schema_with(properties)
    if schema.names != expected.names or not to_arrow_schema(schema, timezone="UTC").equals(
        expected
    ):
        raise PipelineError(
            f"the columns of stomp are {' '.join(MESSAGES.split())}; expected no schema(), and a select() behind load()"
        )
