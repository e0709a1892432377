"""Transaction branches: the broker as a resource manager of X/Open XA."""
