"""The admin service: HTTP, JSON, one resource for each thing that is administered."""
