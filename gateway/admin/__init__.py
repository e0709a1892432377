"""How operators watch and drive an instance: an HTTP service that answers in JSON, and commands."""
