"""What sessions and branches send and acknowledge is accepted, and stored together."""
