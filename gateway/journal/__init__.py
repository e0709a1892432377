"""What happened to messages, as lines in files: written here, read by whoever wants to know."""
