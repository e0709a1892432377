"""How a link delivers batches: by acknowledgement, or in transactions."""
