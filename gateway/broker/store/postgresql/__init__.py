"""The store in PostgreSQL, which several machines may share."""
