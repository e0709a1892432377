"""The documentation's pictures show the console as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.chromium import browser
from tests.crash.waiting import until
from tests.gateway.admin.console.serving import Pages
from tests.gateway_process import PATIENCE, ROOT
from tests.scripts import script

pytestmark = pytest.mark.process

AGAIN = "take them again: .venv/bin/python docs/screenshots.py"


def test_the_pages_are_built_as_those_in_the_pictures(tmp_path: Path) -> None:
    screenshots = script("screenshots")
    built = {}
    with (
        screenshots.shop(tmp_path / "gateway") as served,
        browser(tmp_path / "browser", here=True) as page,
    ):
        pages = Pages(page, served)
        pages.log_in("admin")
        for name, _ in screenshots.views(pages):
            built[name] = screenshots.structure(page)
    recorded = {
        name: json.loads(screenshots.FOLDER.joinpath(f"{name}.json").read_text()) for name in built
    }
    assert list(built) == list(screenshots.VIEWS)
    assert built == recorded, AGAIN


def test_each_picture_is_there_in_both_themes_and_is_small() -> None:
    screenshots = script("screenshots")
    names = {
        f"{path.stem}-{theme}"
        for path in screenshots.FOLDER.glob("*.json")
        for theme in ("light", "dark")
    }
    sizes = {path.stem: path.stat().st_size for path in screenshots.FOLDER.glob("*.png")}
    assert set(sizes) == names
    assert max(sizes.values()) < 100_000


def test_a_job_of_the_pipeline_ends_with_the_script_however_that_ends(tmp_path: Path) -> None:
    run = f"from tests.scripts import script; script('screenshots').pipeline('journeys', {str(tmp_path)!r})"
    errors = tmp_path / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", run], cwd=ROOT, stderr=file)

    def job() -> psutil.Process | None:
        children = psutil.Process(process.pid).children()
        return next((each for each in children if "journeys" in each.cmdline()), None)

    found = until(job, "no job was started")
    process.kill()
    process.wait()
    found.wait(PATIENCE)
    assert errors.read_text() == "", "it has come to its own end"
