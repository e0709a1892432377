"""One link: its states, its pump, its two endpoints."""
