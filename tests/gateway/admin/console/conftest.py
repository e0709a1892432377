"""What the tests of the console share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chromium import Browser, browser
from tests.gateway.admin.console.serving import Pages, Served


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser"), here=True) as found:
        yield found


@pytest.fixture
def pages(chromium: Browser, served: Served) -> Pages:
    found = Pages(chromium, served)
    found.log_in("admin")
    return found
