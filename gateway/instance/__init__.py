"""One installation on disk. A leaf.

Its settings, directories, lock, passfile, log files, memory and port mapper.
"""
