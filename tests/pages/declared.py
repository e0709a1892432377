"""Which pages are run, and what of them is not."""

from __future__ import annotations

from typing import Final

#: Pages of which each block is run.
PAGES: Final = (
    "bridgemgr",
    "console",
    "imqcmd",
    "imqdbmgr",
    "installation",
    "journal",
    "production",
)
SYNTAX: Final = "a synopsis"
#: Which other test runs a block, or all blocks of a language: the page, the first line, the test.
ELSEWHERE: Final[dict[tuple[str, str], str]] = {
    ("installation", "make deb"): "tests/packaging/test_debian.py",
    (
        "installation",
        "apt install ./build/deb/stomp-gateway_*.deb",
    ): "tests/packaging/test_debian.py",
    (
        "installation",
        "systemctl enable --now stomp-gateway.socket",
    ): "tests/packaging/test_debian.py",
}
CONTAINERS: Final = "needs Podman"
NOT_RUN: Final[dict[tuple[str, str], str]] = {
    ("bridgemgr", "imqbridgemgr SUBCOMMAND ARGUMENT [options]"): SYNTAX,
    (
        "imqdbmgr",
        "imqdbmgr COMMAND [tbl] [options]",
    ): SYNTAX,
    ("installation", "podman build -f packaging/container/Containerfile -t stomp-g"): CONTAINERS,
    ("installation", "podman exec -it mq imqusermgr add -u alice -g users"): CONTAINERS,
    ("imqcmd", "imqcmd SUBCOMMAND ARGUMENT [options]"): SYNTAX,
}
