"""One link: its states, its pump, its two ends."""
