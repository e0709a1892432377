"""The bill of materials: scripts of others, and parts of packages."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.dependencies import ALLOWED

ROOT: Final = Path(__file__).parents[2]
BILL: Final = ROOT / "packaging" / "vendored.cdx.json"
SCRIPT: Final = ROOT / "packaging" / "debian" / "bill"
#: Of what is inside of Vega, also "do as you like".
OF_SCRIPTS: Final = {*ALLOWED, "Unlicense"}

Component = dict[str, Any]


def all_of(components: list[Component]) -> Iterator[Component]:
    for each in components:
        yield each
        yield from all_of(each.get("components", []))


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BILL.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def libraries(bill: dict[str, Any]) -> list[Component]:
    return [each for each in all_of(bill["components"]) if each["type"] == "library"]


def address(library: Component, kind: str) -> str:
    [found] = [each["url"] for each in library["externalReferences"] if each["type"] == kind]
    return str(found)


def valid(text: str) -> None:
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert wrong is None, wrong


def vendored() -> Iterator[Path]:
    """The scripts of others in the packages, without their licences."""
    for package in ("gateway", "bridge", "certs", "pipeline"):
        for path in (ROOT / package).rglob("vendored/*"):
            if path.name != "README.rst" and not path.name.startswith("LICENSE."):
                yield path


def test_the_bill_is_cyclonedx() -> None:
    valid(BILL.read_text("utf-8"))


def test_each_vendored_file_is_in_the_bill_with_its_hash(bill: dict[str, Any]) -> None:
    listed = {
        each["name"]: {hashed["alg"]: hashed["content"] for hashed in each["hashes"]}
        for each in all_of(bill["components"])
        if each["type"] == "file"
    }
    there = {
        path.relative_to(ROOT).as_posix(): {
            "SHA-256": hashlib.sha256(path.read_bytes()).hexdigest()
        }
        for path in vendored()
    }
    assert listed == there


def test_scripts_of_others_are_nowhere_else() -> None:
    minified = {
        path
        for package in ("gateway", "bridge", "certs", "pipeline")
        for path in (ROOT / package).rglob("*.min.*")
    }
    assert minified <= set(vendored())


def test_each_has_a_version_a_source_and_a_licence_whose_text_lies_beside_it(
    libraries: list[Component],
) -> None:
    for each in libraries:
        name, version = each["name"], each["version"]
        assert each["purl"] == f"pkg:npm/{name}@{version}"
        assert address(each, "distribution").endswith(f"/{name}/-/{name}-{version}.tgz")
        [licence] = each["licenses"]
        words = licence.get("expression") or licence["license"]["id"]
        assert set(words.split(" AND ")) <= OF_SCRIPTS, name
        text = ROOT / address(each, "license")
        assert text.is_file()
        for part in each.get("components", []):
            assert part["type"] == "library" or (ROOT / part["name"]).parent == text.parent


def test_what_vega_has_inside_is_what_its_file_of_licences_names(
    libraries: list[Component],
) -> None:
    text = (ROOT / "pipeline/report/vendored/LICENSE.bundled").read_text("utf-8")
    listed = {
        f"{each['name']} {each['version']}"
        for each in libraries
        if address(each, "license").endswith("LICENSE.bundled")
    }
    assert listed == set(re.findall("(?m)^==== (.*)", text))


def test_a_file_that_says_its_version_says_that_of_the_bill(libraries: list[Component]) -> None:
    """Not each does; those that do are not to be replaced without the bill."""
    said = set()
    for each in libraries:
        for part in each.get("components", []):
            if part["type"] == "file":
                text = (ROOT / part["name"]).read_text("utf-8")
                if each["version"] in text:
                    said.add(each["name"])
    assert said >= {"htmx.org", "uplot", "vega", "vega-lite", "vega-interpreter"}


def added(tmp_path: Path, bill: object, **bills: str) -> tuple[dict[str, Any], str]:
    """Run the script that adds to a bill what packages say.

    :returns: the bill, and what the script says.
    """
    path = tmp_path / "bill.json"
    path.write_text(json.dumps(bill))
    for place, text in bills.items():
        package, name = place.split("__")
        folder = tmp_path / "site" / f"{package}-1.0.dist-info" / "sboms"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(text)
    done = subprocess.run(
        [sys.executable, SCRIPT, path, tmp_path / "site"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    valid(path.read_text())
    return json.loads(path.read_text()), done.stderr


def environment(*names: str) -> dict[str, Any]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": [
            {"type": "library", "name": name, "version": "1.0", "bom-ref": f"{name}==1.0"}
            for name in names
        ],
        "dependencies": [{"ref": f"{name}==1.0"} for name in names],
    }


@pytest.mark.process
def test_what_packages_have_inside_becomes_a_part_of_them(tmp_path: Path) -> None:
    library = {"type": "library", "name": "z", "bom-ref": "z"}
    inner = {
        "bomFormat": "CycloneDX",
        "metadata": {"component": {"type": "library", "name": "it", "bom-ref": "it"}},
        "components": [library],
        "dependencies": [{"ref": "it", "dependsOn": ["z"]}, {"ref": "z"}],
    }
    text = json.dumps(inner)
    found, said = added(
        tmp_path,
        environment("The.One", "other", "third"),
        the_one__a=text,
        the_one__b=text,
        other__a=text,
    )
    parts = {
        each["name"]: [part["bom-ref"] for part in each.get("components", [])]
        for each in found["components"]
    }
    assert parts == {
        "The.One": ["The.One==1.0/a.json/z", "The.One==1.0/b.json/z"],
        "other": ["other==1.0/a.json/z"],
        "third": [],
    }
    depends = {each["ref"]: each.get("dependsOn", []) for each in found["dependencies"]}
    assert depends["The.One==1.0"] == parts["The.One"]
    assert depends["third==1.0"] == []
    assert said == ""


@pytest.mark.process
def test_a_bill_in_another_format_is_named(tmp_path: Path) -> None:
    found, said = added(tmp_path, environment("one"), one__spdx='{"spdxVersion": "SPDX-2.3"}')
    assert "components" not in found["components"][0]
    assert "one-1.0.dist-info/sboms/spdx.json: not added, expected CycloneDX in JSON" in said
