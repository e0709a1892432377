"""The Spark data source ``stomp``: queues and topics of any STOMP broker as DataFrames."""
