"""Tests of the data source ``stomp``."""
