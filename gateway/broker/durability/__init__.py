"""What becomes durable, when, and how it is found again after a restart."""
