"""How a command ends whose output is not read, or cannot be written.

Where nothing reads the output any more, as behind ``| head``, it ends without a word. SIGPIPE ends
it, which shells show as 141, if that stopped the command, which does not go on; it has its own exit
code if only the last of the output was not read. Where the output cannot be written, as on a full
disk, it ends with 1 and says so.

All commands of the project end so, those of the certificates and the pipeline, too. So this imports
nothing of ours.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NoReturn, TextIO

#: Why a file that the output goes to takes no more.
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run_to_the_end(run: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a program with the process's arguments, and end the process.

    :param run: returns the exit code.
    """
    with output_written():
        sys.exit(run(sys.argv[1:]))


@contextmanager
def output_written() -> Iterator[None]:
    """Write what is printed in the block by its end, or end the process.

    :raises SystemExit: the block did, or the output cannot be written.
    """
    ended: SystemExit | None = None
    is_through = False
    try:
        try:
            yield
        except SystemExit as raised:
            ended = raised
        is_through = True
        sys.stdout.flush()
    except BrokenPipeError:
        _drop(sys.stdout, sys.stderr)
        if not is_through:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGPIPE)
            # The caller has blocked the signal.
            sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _drop(sys.stdout)
        with suppress(OSError):
            program = os.path.basename(sys.argv[0])
            print(f"{program}: Error: cannot write the output: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    if ended is not None:
        raise ended


@contextmanager
def broken_pipes_of_click() -> Iterator[None]:
    """Raise BrokenPipeError where Click exits because of one.

    To be put around all other handlers of errors.
    """
    streams = sys.stdout, sys.stderr
    try:
        yield
    except SystemExit:
        if sys.stdout is streams[0]:
            raise
        # Click has wrapped the streams.
        sys.stdout, sys.stderr = streams
        raise BrokenPipeError from None


def _drop(*streams: TextIO) -> None:
    """Write to nowhere from now on; Python flushes at the end, too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
