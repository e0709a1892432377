"""Administration of an instance: an HTTP service, and its commands."""
