"""How operators watch and drive an instance: an HTTP service that answers in JSON, and the commands that ask it."""
