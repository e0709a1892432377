"""Traces: spans of what the journal tells, for a collector."""
