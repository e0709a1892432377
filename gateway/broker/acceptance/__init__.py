"""Accepts what sessions and branches do, and has it stored together."""
