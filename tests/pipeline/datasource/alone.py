"""A program for environments that have the wheel ``pyspark-stomp``.

They have nothing else of ours. It writes rows to one queue, reads them back without ``register``, and prints what it has found as
one line of JSON. With ``register`` it then registers the data source of the tree that is on the
path, and reads once more.

Its arguments: the master, or ``sc://`` and an address; a JSON object of the options; ``register``.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from typing import Any


def main(where: str, options: dict[str, str], register: bool) -> None:
    from pyspark.sql import SparkSession

    if where.startswith("sc://"):
        spark = SparkSession.builder.remote(where).getOrCreate()
    else:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = json.loads(os.environ["SETTINGS"])
        spark = SparkSession.builder.config(map=settings).master(where).getOrCreate()
    rows = spark.range(3).selectExpr("concat('m', id) AS text", "map('n', string(id)) AS headers")
    rows.coalesce(1).write.format("stomp").options(**options).mode("append").save()
    found: dict[str, Any] = {"alone": read(spark, options)}
    if register:
        from pipeline.datasource.source import register as registered

        registered(spark)
        found["registered"] = read(spark, options)
        found["again"] = read(spark, options)
    found["refused"] = refused(spark, options)
    names = ("twisted", "gateway", "pipeline", "pyspark_stomp")
    found["importable"] = [name for name in names if find_spec(name) is not None]
    print(json.dumps(found))


def read(spark: Any, options: dict[str, str]) -> list[list[str]]:
    rows = spark.read.format("stomp").options(**options).load()
    return sorted(
        [[row.text, row.number] for row in rows.selectExpr("text", "headers.n AS number").collect()]
    )


def refused(spark: Any, options: dict[str, str]) -> str:
    """What is said of a wrong option, and by which module."""
    try:
        print(spark.read.format("stomp").options(**options, color="red").load().schema)
    except Exception as error:  # noqa: BLE001 - Spark has an own kind for each way to reach it
        return str(error)
    return ""


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:] == ["register"])
