"""The data pipeline: Spark jobs on what passed through the gateway.

They read, audit, archive and replay it.
"""
