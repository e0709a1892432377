"""The journal: what happened to messages, as lines in files.

The lines are written here; any reader of files can read them.
"""
