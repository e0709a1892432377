"""One installation on disk: its settings, directories, lock, passfile, log files and port mapper. A
leaf.
"""
