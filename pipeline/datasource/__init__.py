"""The Spark data source ``stomp``: STOMP destinations as DataFrames.

:func:`pipeline.datasource.source.register` tells a session of it. Nothing is imported here, so that
options can be checked without Spark.
"""
