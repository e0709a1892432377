"""A page in headless Chromium: what it becomes, what it says, how it looks.

Owns the browser's process, which has a profile of its own, no network, and a limit of time.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMAND: Final = "chromium"
_SECONDS: Final = 90
_ARGUMENTS: Final = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
    # Whatever a page may ask for, nobody answers.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:9",
)


@dataclass(frozen=True)
class Opened:
    """A page as the browser has it.

    :param dom: the document after all that it does by itself.
    :param console: what was written to the console.
    :param picture: a PNG file.
    """

    dom: str
    console: list[str]
    picture: Path


def opened(
    page: Path, folder: Path, *, width: int = 1_200, height: int = 2_400, dark: bool = False
) -> Opened:
    """Open a page.

    :param folder: for the browser's profile and the picture.
    :param width: and
    :param height: of the window.
    :param dark: the user likes dark pages.
    """
    picture = folder / f"{page.stem}{'-dark' if dark else ''}.png"
    profile = folder / f"profile-{picture.stem}"
    arguments = [
        *_ARGUMENTS,
        # The sandbox does not work for root.
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
        "--dump-dom",
        f"--screenshot={picture}",
        page.absolute().as_uri(),
    ]
    with subprocess.Popen(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=folder,
    ) as process:
        try:
            out, err = process.communicate(timeout=_SECONDS)
        except BaseException:
            # Its renderers, too.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    said = err.decode(errors="replace").splitlines()
    assert process.returncode == 0, "\n".join(said)
    return Opened(out.decode(), [line for line in said if "CONSOLE" in line], picture)
