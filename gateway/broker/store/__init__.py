"""Where the broker keeps what must survive it."""
