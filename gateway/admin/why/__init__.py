"""Why a message is not delivered: its causes."""
