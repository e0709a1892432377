"""The data pipeline: reads, audits, archives and replays with Spark what passed through the
gateway.
"""
