"""A wall clock that a test sets, below real processes."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shifted_clock.c")


def build_shifted_clock(folder: Path) -> Path:
    """Compile the preloaded library; it needs a C compiler, as ``cc``."""
    made = folder / "shifted_clock.so"
    options = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["cc", *options, "-o", str(made), str(SOURCE), "-ldl"], check=True)
    # For a server that runs as another user.
    made.chmod(0o755)
    return made


class WallClock:
    """The wall clock of the processes that were started with its environment.

    :param folder: which these processes may read.
    """

    def __init__(self, library: Path, folder: Path) -> None:
        self._shift = folder / "shift"
        self._shift.write_bytes(struct.pack("=q", 0))
        self._shift.chmod(0o644)
        self.environment = dict(os.environ, LD_PRELOAD=str(library), SHIFTED_CLOCK=str(self._shift))

    def jump(self, seconds: int) -> None:
        with self._shift.open("r+b") as file:
            (shift,) = struct.unpack("=q", file.read(8))
            file.seek(0)
            file.write(struct.pack("=q", shift + seconds))
