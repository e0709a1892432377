"""Connection factories, and the connections that a bridge uses."""
