"""Whether a store is whole: its log, its checksums, what is refused and what can be saved."""
