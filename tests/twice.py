"""Runs pytest, and what has failed once more, alone.

Hundreds of tests start real processes, six beside each other, and wait for what these do. On a
machine that has no processor to spare for a while one of them may fail for that. So a test has
failed when it fails again with nothing beside it; what passes then is named at the end, for it may
also be a defect that shows itself rarely. ::

    python -m tests.twice [what pytest is given]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

#: So many do not fail by chance.
MOST: Final = 10
_FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")
_NO_CACHE: Final = ("-p", "no:cacheprovider")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. :returns: pytest's exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Those of a run before are not those of this one.
    _FAILED.unlink(missing_ok=True)
    status = _pytest(given)
    failed = _failed()
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MOST:
        return status
    print(f"\n{len(failed)} failed. Once more, with nothing beside:", flush=True)
    again = _pytest([*_NO_CACHE, *(["--long"] if "--long" in given else []), *failed])
    if again == pytest.ExitCode.OK:
        print("Failed beside others, and passed alone; look at what they said above:")
        for name in failed:
            print(f"  {name}", flush=True)
    return again


def _pytest(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _failed() -> list[str]:
    """The tests that failed, as pytest is given them."""
    if not _FAILED.exists():
        return []
    return sorted({_without_group(name) for name in json.loads(_FAILED.read_text("utf-8"))})


def _without_group(name: str) -> str:
    """A test's name without ``@`` and its group, as pytest-xdist puts it."""
    return name if name.endswith("]") or "@" not in name else name.rpartition("@")[0]


if __name__ == "__main__":
    sys.exit(main())
