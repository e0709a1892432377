"""The URL of a PostgreSQL database, in libpq's form or the JDBC driver's.

Owns what the JDBC driver's URLs mean to libpq. What libpq's own mean is libpq's to say.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

_JDBC: Final = "jdbc:postgresql:"
_LIBPQ: Final = ("postgresql://", "postgres://")
EXPECTED: Final = "postgresql://HOST:PORT,.../DATABASE or jdbc:postgresql://HOST:PORT,.../DATABASE"

#: Parameters of the JDBC driver (https://jdbc.postgresql.org/documentation/use/), each with the
#: keyword of libpq that means the same.
_SAME: Final = {
    "sslmode": "sslmode",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslrootcert": "sslrootcert",
    "sslNegotiation": "sslnegotiation",
    "gssEncMode": "gssencmode",
    "channelBinding": "channel_binding",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
    "options": "options",
    "kerberosServerName": "krbsrvname",
    "user": "user",
    "password": "password",
}
_SERVER_TYPES: Final = {
    "any": "any",
    "primary": "read-write",
    "master": "read-write",
    "preferprimary": "read-write",
}


def keywords(url: str) -> dict[str, str]:
    """Return libpq's keywords for the URL, with their values.

    :raises ValueError: it is no such URL, has a password, or lets the gateway write to a server
        that cannot be written. The text says what was expected, and never shows the URL.
    :raises ImportError: psycopg is not installed.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    written = url.strip()
    if written.startswith(_JDBC):
        written = _of_jdbc(written[len(_JDBC) :])
    if not written.startswith(_LIBPQ):
        raise ValueError(EXPECTED)
    try:
        found = {key: str(value) for key, value in conninfo_to_dict(written).items() if value}
    except ProgrammingError as error:
        # Its text may quote parts of the URL, a password among them.
        raise ValueError(EXPECTED) from error
    if "password" in found:
        raise ValueError("a URL without a password, which belongs in the passfile")
    if "service" in found or "dbname" not in found:
        raise ValueError(f"the name of a database: {EXPECTED}")
    if found.get("target_session_attrs", "read-write") not in ("any", "read-write", "primary"):
        raise ValueError("target_session_attrs=read-write, primary or any")
    return found


def _of_jdbc(rest: str) -> str:
    """Return libpq's URL for what follows ``jdbc:postgresql:``.

    :raises ValueError: a parameter is not known.
    """
    place, _, query = rest.partition("?")
    if not place.startswith("//"):
        # jdbc:postgresql:DATABASE and jdbc:postgresql:/ are on this machine.
        place = f"//localhost/{place.lstrip('/')}"
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _SAME:
            parameters[_SAME[name]] = value
        elif name == "ssl":
            # As the driver has it: encrypted, the server's name verified.
            if value.lower() in ("", "true"):
                parameters.setdefault("sslmode", "verify-full")
        elif name == "targetServerType" and value.lower() in _SERVER_TYPES:
            parameters["target_session_attrs"] = _SERVER_TYPES[value.lower()]
        elif name == "tcpKeepAlive":
            parameters["keepalives"] = "1" if value.lower() == "true" else "0"
        elif name != "ApplicationName":
            raise ValueError(
                f"a parameter that is known in the place of {name}; libpq's are known in a URL postgresql://..."
            )
    return f"postgresql:{place}{'?' + urlencode(parameters, quote_via=quote) if parameters else ''}"


def described(found: dict[str, str]) -> str:
    """Return the hosts, the ports and the name of the database."""
    hosts = found.get("host", found.get("hostaddr", "localhost")).split(",")
    ports = found.get("port", "5432").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    places = [
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in zip(hosts, ports, strict=False)
    ]
    return f"{','.join(places)}/{unquote(found['dbname'])}"
