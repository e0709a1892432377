"""The check of dependencies, and the bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, cast

import pytest

from tests.dependencies import ROOT, closure


class Package:
    """As much of a distribution as is looked at."""

    def __init__(self, version: str = "1.0", *requires: str, **metadata: str) -> None:
        self.version = version
        self.requires = list(requires)
        self.metadata = Message()
        for name, value in (metadata or {"License_Expression": "MIT"}).items():
            self.metadata[name.replace("_", "-")] = value


def found(**packages: Package) -> dict[str, str]:
    return closure("root[more]", cast(dict[str, Distribution], cast(Any, packages)))


@pytest.mark.parametrize(
    ("package", "wrong"),
    [
        (Package(), ""),
        (Package(License_Expression="MIT OR (Apache-2.0 AND ISC)"), ""),
        (Package(Classifier="License :: OSI Approved :: MIT License"), ""),
        (Package("0.9"), "one 0.9 is installed, and >=1 required"),
        (Package(License_Expression="AGPL-3.0-only"), "one 1.0 has the licence AGPL-3.0-only,"),
        (Package(Name="one"), "one 1.0 has the licence unknown,"),
    ],
)
def test_what_is_wrong_with_a_package(package: Package, wrong: str) -> None:
    said = found(root=Package("1.0", "one>=1"), one=package)["one"]
    assert said.startswith(wrong)
    assert bool(said) == bool(wrong)


def test_what_an_extra_brings_counts_and_that_of_others_does_not() -> None:
    root = Package("1.0", "one; extra == 'more'", "two; extra == 'other'")
    assert found(root=root) == {"root": "", "one": "one is not installed"}


def test_the_gateway_has_what_it_needs() -> None:
    assert {name: what for name, what in closure(ROOT).items() if what} == {}


@pytest.mark.process
def test_the_bill_of_materials_has_all_of_them(tmp_path: Path) -> None:
    made = tmp_path / "sbom.json"
    command: list[str | Path] = [
        Path(sys.executable).with_name("cyclonedx-py"),
        "environment",
        "--output-reproducible",
    ]
    done = subprocess.run(
        [*command, "--output-format", "JSON", "--output-file", made, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    bill = json.loads(made.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    names = {
        each["name"].lower().replace("_", "-").replace(".", "-") for each in bill["components"]
    }
    assert closure(ROOT).keys() <= names
    assert all(each.get("version") for each in bill["components"])
