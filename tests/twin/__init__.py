"""Two trees, one script: what the gateway of each does is compared turn by turn."""
