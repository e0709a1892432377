"""The coordinator's decision log."""
