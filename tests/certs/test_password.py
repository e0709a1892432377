"""The key store's password, as a passfile has it."""

from pathlib import Path

import pytest

from certs.command import read_password
from certs.files import CertificateFileError


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("imq.keystore.password=sesame\n", "sesame"),
        (
            "# imq.keystore.password=no\nimq.other=x\n  imq.keystore.password : open sesame\r\n",
            "open sesame",
        ),
        ("imq.keystore.password=a\nimq.keystore.password=b", "b"),
        ("imq.keystore.password sesame", "sesame"),
        ("imq.keystore.password=\\ a\\\\b\\u00e4\\t", " a\\bä\t"),
        ("imq.keystore.password=\\uD83D\\uDE00", "\N{GRINNING FACE}"),
        ("imq.keystore.password=p=q:r#s", "p=q:r#s"),
        ("imq.keystore.passwords=x\n", None),
        ("imq.keystore.password=\n", None),
        ("", None),
    ],
)
def test_passwords(tmp_path: Path, text: str, password: str | None) -> None:
    passfile = tmp_path / "passfile"
    passfile.touch(0o600)
    passfile.write_bytes(text.encode())
    assert read_password(passfile) == (None if password is None else password.encode())


def test_a_passfile_that_others_can_read_is_refused(tmp_path: Path) -> None:
    passfile = tmp_path / "passfile"
    passfile.write_text("imq.keystore.password=sesame\n")
    passfile.chmod(0o640)
    with pytest.raises(CertificateFileError, match="has mode 0640; expected 0600") as error:
        read_password(passfile)
    assert "sesame" not in str(error.value)


def test_passfiles_that_cannot_be_read(tmp_path: Path) -> None:
    passfile = tmp_path / "passfile"
    with pytest.raises(CertificateFileError, match="No such file"):
        read_password(passfile)
    passfile.touch(0o600)
    passfile.write_bytes(b"imq.keystore.password=\xff\n")
    with pytest.raises(CertificateFileError, match="expected text in UTF-8"):
        read_password(passfile)
    passfile.write_bytes(b"imq.keystore.password=\\ud83d\n")
    with pytest.raises(CertificateFileError, match="half a surrogate pair"):
        read_password(passfile)
