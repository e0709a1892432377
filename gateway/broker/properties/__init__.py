"""What an administrator sets: names, properties, settings."""
