"""The core of the broker: destinations, what waits in them, and how it is handed out."""
