"""What a link is made of: its states, its pump, its two endpoints."""
