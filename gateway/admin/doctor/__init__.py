"""What an operator may have forgotten: the checks of ``imqcmd doctor``."""
