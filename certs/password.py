"""The key store's password, from a passfile.

Owns reading that one line. A passfile is a .properties file in UTF-8, of which one line is
``imq.keystore.password=PASSWORD``.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Final

from certs.files import PASSWORD_NAME, CertificateFileError, read

_LINE: Final = re.compile(rf"[ \t\f]*{re.escape(PASSWORD_NAME)}[ \t\f]*[=: \t\f][ \t\f]*(.*)")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
_WRITTEN: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_password(passfile: Path) -> bytes | None:
    """The password, in UTF-8; None where the passfile has no such line, or an empty one. Of several
    lines the last counts.

    :raises CertificateFileError: the passfile cannot be read, is not its owner's alone, or is not
        in UTF-8.
    """
    data = read(passfile)
    mode = stat.S_IMODE(passfile.stat().st_mode)
    if mode & 0o077:
        raise CertificateFileError(
            passfile, f"has mode {mode:04o}; expected 0600, for it holds passwords"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CertificateFileError(passfile, "expected text in UTF-8") from error
    password = ""
    for line in re.split(r"\r\n|\r|\n", text):
        match = _LINE.fullmatch(line)
        if match is not None:
            password = _ESCAPE.sub(_unescaped, match[1])
    try:
        # Two \u escapes of a surrogate pair are one character, as they are to Java.
        return password.encode("utf-16", "surrogatepass").decode("utf-16").encode() or None
    except UnicodeDecodeError as error:
        raise CertificateFileError(
            passfile, f"{PASSWORD_NAME} has half a surrogate pair"
        ) from error


def _unescaped(match: re.Match[str]) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    return _WRITTEN.get(match[2], match[2])
