"""The Java classes that are shipped, one jar, are those of the sources that are shipped."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from bridge.providers.jms import build

JAR = build.JARS / build.JAR
#: The first release of a class file's version number that Java 8 reads is the last, too.
JAVA_8 = 52


def contents(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_shipped_jar_says_that_it_is_made_of_the_shipped_sources() -> None:
    assert build.made_of(JAR)[0] == build.digest()


def test_building_the_shipped_sources_gives_the_shipped_classes(tmp_path: Path) -> None:
    again = build.build(tmp_path)
    assert again == tmp_path / build.JAR
    assert contents(JAR).keys() == contents(again).keys()
    if build.made_of(JAR)[1] == build.compiler():
        assert contents(JAR) == contents(again)


def test_the_classes_run_on_java_8() -> None:
    for name, octets in contents(JAR).items():
        if name.endswith(".class"):
            assert int.from_bytes(octets[6:8], "big") == JAVA_8, name


def test_both_namespaces_have_the_same_classes_and_know_their_own_api_only() -> None:
    classes = contents(JAR)
    javax = {name.replace("/javax/", "/jakarta/") for name in classes if "/javax/" in name}
    jakarta = {name for name in classes if "/jakarta/" in name}
    assert javax == jakarta
    assert jakarta
    for name, octets in classes.items():
        assert (b"javax/jms" in octets) <= ("/javax/" in name)
        assert (b"jakarta/jms" in octets) <= ("/jakarta/" in name)


def test_the_api_itself_is_not_shipped() -> None:
    assert [name for name in contents(JAR) if name.startswith(("javax/", "jakarta/"))] == []


def test_the_jar_is_the_only_one() -> None:
    assert [path.name for path in build.JARS.iterdir()] == [build.JAR]


def test_a_source_that_does_not_compile_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "Wrong.java").write_text("class Wrong {")
    with pytest.raises(build.BuildFailed, match=r"Wrong\.java:1"):
        build.compile_sources(tmp_path, tmp_path / "classes")


def test_without_a_jdk_the_build_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildFailed, match="no javac on the PATH"):
        build.build(tmp_path)
