"""The commands ``imqbridgemgr`` and ``imqcmd``."""
