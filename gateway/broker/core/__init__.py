"""The core of the broker: destinations, waiting messages, dispatch."""
