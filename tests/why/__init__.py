"""Why messages are not delivered: a scene for each cause."""
