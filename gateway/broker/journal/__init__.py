"""The broker's lines in the journal."""
