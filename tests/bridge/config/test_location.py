"""Where a configuration may be, and files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.config.document import LARGEST
from bridge.config.loading import locate, read_file
from bridge.config.problems import ConfigurationError
from bridge.config.settings import SETTINGS
from gateway.instance.settings import SettingsError, Severity, read

ETC = Path("/var/imq/etc")
REMOTE = "imq.bridge.config.remote=true"


def located(url: str, *overrides: str) -> Path | str:
    settings, _ = read(SETTINGS, None, [f"imq.bridge.mq.xmlurl={url}", *overrides])
    return locate(settings, "mq", ETC)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/net/fileserver/imq/jmsbridge1.config.xml", "/net/fileserver/imq/jmsbridge1.config.xml"),
        ("jmsbridge1.xml", "/var/imq/etc/jmsbridge1.xml"),
        ("a b#c?.xml", "/var/imq/etc/a b#c?.xml"),
        (
            "file:/net/fileserver/imq/jmsbridge1.config.xml",
            "/net/fileserver/imq/jmsbridge1.config.xml",
        ),
        ("file:///net/a%20b.xml", "/net/a b.xml"),
        ("FILE://localhost/net/a.xml", "/net/a.xml"),
        ("file:jmsbridge1.xml", "/var/imq/etc/jmsbridge1.xml"),
    ],
)
def test_files(url: str, path: str) -> None:
    assert located(url) == Path(path)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (
            "http://webserver/imq/jmsbridge1.config.xml",
            "http://webserver/imq/jmsbridge1.config.xml",
        ),
        ("HTTPS://webserver:8443/a?b=c#d", "https://webserver:8443/a?b=c"),
        ("http://[::1]:80/a", "http://[::1]:80/a"),
    ],
)
def test_urls(given: str, url: str) -> None:
    assert located(given, REMOTE) == url


@pytest.mark.parametrize(
    ("overrides", "url", "expected"),
    [
        (
            (),
            "http://web/a.xml",
            "a path or a file: URL; http: and https: URLs are read only with imq.bridge.config.remote=true",
        ),
        (
            (),
            "https://web/a.xml",
            "a path or a file: URL; http: and https: URLs are read only with imq.bridge.config.remote=true",
        ),
        ((), "ftp://web/a.xml", "a path, a file: URL, or an http: or https: URL"),
        (
            (),
            "file://server/a.xml",
            "a file: URL of this machine, such as file:///PATH, and not of server",
        ),
        (
            (),
            "file:/a.xml#b",
            "a file: URL with neither ? nor #, which are written %3F and %23 in it",
        ),
        ((), "file:", "a file: URL with a path"),
        ((), "file:/a%00b", "a file: URL with a path"),
        ((REMOTE,), "http:/a.xml", "a URL with a host"),
        ((REMOTE,), "http://web:x/a.xml", "a URL whose port is a number from 0 to 65535"),
        ((REMOTE,), "http://web:65536/a.xml", "a URL whose port is a number from 0 to 65535"),
        (
            (REMOTE,),
            "http://[::1/a.xml",
            "a path, a file: URL, or an http: or https: URL: Invalid IPv6 URL",
        ),
        (
            (REMOTE,),
            "http://web/é.xml",
            "a URL in ASCII without blanks; other characters are written as %XX, and in host names as xn--",
        ),
        (
            (REMOTE,),
            "http://web/a b",
            "a URL in ASCII without blanks; other characters are written as %XX, and in host names as xn--",
        ),
    ],
)
def test_bad_ones(overrides: tuple[str, ...], url: str, expected: str) -> None:
    with pytest.raises(SettingsError) as raised:
        located(url, *overrides)
    [found] = raised.value.problems
    assert str(found) == f"-D: imq.bridge.mq.xmlurl={url}: expected {expected}"
    assert found.severity is Severity.BRIDGE


def test_a_url_with_a_password_is_not_shown() -> None:
    with pytest.raises(SettingsError) as raised:
        located("http://me:s3cret@web/a.xml", REMOTE)
    assert (
        str(raised.value)
        == "-D: imq.bridge.mq.xmlurl=http://********@web/a.xml: expected a URL without user and password"
    )


def test_the_other_name() -> None:
    settings, _ = read(SETTINGS, None, ["imq.bridge.mq.xml=a.xml"])
    assert locate(settings, "mq", ETC) == ETC / "a.xml"
    settings, _ = read(SETTINGS, None, ["imq.bridge.mq.xml=ftp:a"])
    with pytest.raises(SettingsError, match=r"imq\.bridge\.mq\.xml=ftp:a: expected a path"):
        locate(settings, "mq", ETC)


def test_both_names() -> None:
    assert located("a.xml", "imq.bridge.mq.xml=a.xml") == ETC / "a.xml"
    with pytest.raises(SettingsError) as raised:
        located("a.xml", "imq.bridge.mq.xml=b.xml")
    assert (
        str(raised.value)
        == "-D: imq.bridge.mq.xml=b.xml: expected the same as imq.bridge.mq.xmlurl, or only one of the two"
    )


def test_none() -> None:
    settings, _ = read(SETTINGS, None)
    with pytest.raises(SettingsError) as raised:
        locate(settings, "mq", ETC)
    assert str(raised.value).endswith(
        "the settings of the instance: no line imq.bridge.mq.xmlurl=...: expected where the XML configuration of the bridge is: a path, a file: URL, or an http: or https: URL"
    )


@pytest.mark.parametrize(
    ("mode", "exposed"),
    [
        (0o600, ""),
        (0o640, "others than its owner may read this file, with mode 0640"),
        (0o604, "others than its owner may read this file, with mode 0604"),
    ],
)
def test_a_file(tmp_path: Path, mode: int, exposed: str) -> None:
    file = tmp_path / "a.xml"
    file.write_bytes(b"<jmsbridge/>")
    file.chmod(mode)
    assert read_file(file) == (b"<jmsbridge/>", exposed)


def failure(path: Path) -> str:
    with pytest.raises(ConfigurationError) as raised:
        read_file(path)
    return str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.xml"
    assert (
        failure(missing)
        == f"{missing}: expected a file that can be read: No such file or directory"
    )
    assert failure(tmp_path) == f"{tmp_path}: expected a file that can be read: Is a directory"
    assert failure(Path("a\0b")) == "a\\x00b: expected a file that can be read: embedded null byte"


def test_a_pipe_holds_nothing_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert failure(pipe) == f"{pipe}: expected a regular file"


def test_a_large_file(tmp_path: Path) -> None:
    large = tmp_path / "large.xml"
    with large.open("wb") as file:
        file.truncate(LARGEST)
    assert len(read_file(large)[0]) == LARGEST
    with large.open("ab") as file:
        file.write(b" ")
    assert failure(large) == f"{large}: expected a document of at most {LARGEST} octets"
