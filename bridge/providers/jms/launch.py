"""Prepare this process for Java, then become Java:
``python -I -S launch.py PARENT JAVA ARGUMENT...``.

It leaves the terminal's process group, or Ctrl-C would end Java before links have stopped. It dies
with its parent, however that ends. When the machine runs out of memory, the kernel ends it before
any other process of the gateway. Run by its path, so it imports nothing of ours.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Run the command in place of this process.

    :param parent: ends this process with it.
    """
    os.setsid()
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            with open("/proc/self/oom_score_adj", "w") as adjustment:
                adjustment.write("500")
        except (OSError, AttributeError) as error:
            # Java then sees the end of the gateway only by its socket, as on other systems.
            print(f"prctl and oom_score_adj: {error}", file=sys.stderr)
    if os.getppid() != parent:
        # The parent ended before prctl, so no signal will come.
        return
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
