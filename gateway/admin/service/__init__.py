"""The admin service: HTTP and JSON, one resource per subject."""
