"""What comes is numbered, and duplicates of it are found."""
