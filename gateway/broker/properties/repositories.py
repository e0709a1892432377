"""The settings of who knows the users: the file, tokens, a directory.

The names of the directory's are the original's (Administration Guide, "Using an LDAP Server for a
User Repository").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.instance.settings import (
    Boolean,
    Duration,
    Setting,
    Settings,
    SettingsError,
    Text,
    Words,
)

FILE: Final = "file"
OIDC: Final = "oidc"
LDAP: Final = "ldap"

REPOSITORIES: Final = Setting(
    "imq.authentication.basic.user_repository",
    Words(),
    (FILE,),
    "Who knows the users: file (etc/users), oidc (tokens), ldap; several with commas between, where the file comes first for its own users",
)
ISSUER: Final = Setting(
    "imq.authentication.oidc.issuer",
    Text(),
    "",
    "Who issues the tokens (their claim iss). As a URL it also has the document that says where the keys are, unless .keys is given",
)
AUDIENCE: Final = Setting(
    "imq.authentication.oidc.audience",
    Words(),
    (),
    "For whom tokens must be (their claim aud): one of these",
)
KEYS: Final = Setting(
    "imq.authentication.oidc.keys",
    Text(),
    "",
    "The keys that tokens are signed with, a JSON Web Key Set: a URL, or a file, from the instance's etc on",
)
KEYS_LIFETIME: Final = Setting(
    "imq.authentication.oidc.keysLifetime",
    Duration("seconds", 10),
    300,
    "Time after which the keys are fetched again; a token with an unknown key has them fetched before that",
)
LEEWAY: Final = Setting(
    "imq.authentication.oidc.leeway",
    Duration("seconds", 0, 300),
    0,
    "By how much the issuer's clock may differ from this machine's; a token ends so much later",
)
USER_CLAIM: Final = Setting(
    "imq.authentication.oidc.userClaim", Text(), "sub", "The claim that has the user's name"
)
GROUPS_CLAIM: Final = Setting(
    "imq.authentication.oidc.groupsClaim",
    Text(),
    "groups",
    "The claim that has the user's groups; dots lead into claims within claims: realm_access.roles",
)
_LDAP: Final = "imq.user_repository.ldap"
SERVER: Final = Setting(
    f"{_LDAP}.server",
    Text(),
    "",
    "The directory, as HOST:PORT; others that stand in for it behind it, with blanks between",
)
PRINCIPAL: Final = Setting(
    f"{_LDAP}.principal",
    Text(),
    "",
    "The distinguished name as which users are looked for; empty: without one",
)
PASSWORD: Final = Setting(
    f"{_LDAP}.password",
    Text(),
    "",
    "The password of that name; better in the passfile",
    secret=True,
)
BASE: Final = Setting(f"{_LDAP}.base", Text(), "", "Below which entry users are")
UID_ATTRIBUTE: Final = Setting(
    f"{_LDAP}.uidattr",
    Text(),
    "",
    "The attribute with the name that a client logs in by, such as uid",
)
USER_FORMAT: Final = Setting(
    f"{_LDAP}.usrformat",
    Text(),
    "",
    "dn: users are called by their distinguished names, not by that attribute",
)
USER_FILTER: Final = Setting(f"{_LDAP}.usrfilter", Text(), "", "A filter that users match, too")
GROUP_SEARCH: Final = Setting(
    f"{_LDAP}.grpsearch", Boolean(), False, "Whether a user's groups are looked for"
)
GROUP_BASE: Final = Setting(f"{_LDAP}.grpbase", Text(), "", "Below which entry groups are")
GID_ATTRIBUTE: Final = Setting(
    f"{_LDAP}.gidattr", Text(), "cn", "The attribute with a group's name"
)
MEMBER_ATTRIBUTE: Final = Setting(
    f"{_LDAP}.memattr",
    Text(),
    "member",
    "The attribute of a group with the distinguished names of its members",
)
GROUP_FILTER: Final = Setting(f"{_LDAP}.grpfilter", Text(), "", "A filter that groups match, too")
TIMEOUT: Final = Setting(
    f"{_LDAP}.timeout",
    Duration("seconds", 1),
    3,
    "How long a server of the directory may take for a connection, and for each answer, before the next is asked",
)
ENCRYPTED: Final = Setting(
    f"{_LDAP}.ssl.enabled", Boolean(), False, "Whether the directory speaks TLS (ldaps)"
)
AUTHORITIES: Final = Setting(
    f"{_LDAP}.ssl.cafile",
    Text(),
    "",
    "Certificates that vouch for the directory, a PEM file, from the instance's etc on; empty: those that the system trusts",
)
SETTINGS: Final[tuple[Setting[Any], ...]] = (
    REPOSITORIES,
    ISSUER,
    AUDIENCE,
    KEYS,
    KEYS_LIFETIME,
    LEEWAY,
    USER_CLAIM,
    GROUPS_CLAIM,
    SERVER,
    PRINCIPAL,
    PASSWORD,
    BASE,
    UID_ATTRIBUTE,
    USER_FORMAT,
    USER_FILTER,
    GROUP_SEARCH,
    GROUP_BASE,
    GID_ATTRIBUTE,
    MEMBER_ATTRIBUTE,
    GROUP_FILTER,
    TIMEOUT,
    ENCRYPTED,
    AUTHORITIES,
)


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Which tokens are taken, and what their claims mean.

    :param issuer: who must have issued them (``iss``).
    :param audience: for one of these they must be (``aud``).
    :param user_claim: whose value is the user's name.
    :param groups_claim: whose value is the user's groups: a list, or texts with blanks between. Dots
        lead into claims within claims; a claim by the whole name goes first.
    :param leeway_s: by how many seconds the provider's clock may differ from this machine's.
    """

    issuer: str
    audience: tuple[str, ...]
    user_claim: str = "sub"
    groups_claim: str = "groups"
    leeway_s: int = 0


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """Where a directory is, and how users stand in it.

    :param servers: ``HOST:PORT`` each, of which the first that answers is asked.
    :param principal: as whom users are looked for; empty: without a name.
    :param base: below which users are.
    :param uid_attribute: has the name that a client logs in by.
    :param user_filter: users match this, too; empty: all.
    :param names_are_dns: a user is called by its distinguished name, not by that attribute.
    :param searches_groups: whether a user's groups are looked for.
    :param group_base: below which they are.
    :param gid_attribute: has a group's name.
    :param member_attribute: has the distinguished names of a group's members.
    :param group_filter: groups match this, too; empty: all.
    :param timeout_s: for a connection, and for each answer.
    :param tls: whether it speaks TLS.
    :param authorities: certificates that are trusted then; None: those that the system trusts.
    """

    servers: tuple[str, ...]
    base: str
    uid_attribute: str
    principal: str = ""
    password: str = field(default="", repr=False)
    user_filter: str = ""
    names_are_dns: bool = False
    searches_groups: bool = False
    group_base: str = ""
    gid_attribute: str = "cn"
    member_attribute: str = "member"
    group_filter: str = ""
    timeout_s: int = 3
    tls: bool = False
    authorities: Path | None = None


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where the keys of tokens are.

    :param place: a file; or a URL, of the set or, where ``discover``, of the issuer.
    """

    place: Path | str
    discover: bool
    lifetime_s: int


def read_repositories(settings: Settings) -> tuple[str, ...]:
    """Return which repositories there are, in order.

    :raises SettingsError: one is unknown, or none is named.
    """
    given = settings[REPOSITORIES]
    names = tuple(dict.fromkeys(given))
    if not names or not {*names} <= {FILE, OIDC, LDAP}:
        expected = f"{FILE}, {OIDC}, {LDAP}, or several of them with commas between"
        raise SettingsError([settings.problem(REPOSITORIES, expected)])
    return names


def read_tokens(settings: Settings, etc: Path) -> tuple[TokenOptions, KeyPlace]:
    """Return which tokens are taken, and where their keys are.

    :param etc: where relative paths begin.
    :raises SettingsError: something is missing.
    """
    needed: dict[Setting[Any], str] = {
        ISSUER: "the issuer of tokens",
        AUDIENCE: "for whom tokens must be",
    }
    _need(settings, needed, f"{REPOSITORIES.name} has {OIDC}")
    issuer, keys = settings[ISSUER], settings[KEYS]
    if not keys and not _is_url(issuer):
        expected = f"the URL or the file of the keys, as {ISSUER.name} is no URL"
        raise SettingsError([settings.problem(KEYS, expected)])
    place = KeyPlace(
        (keys if _is_url(keys) else etc / keys) if keys else issuer,
        not keys,
        settings[KEYS_LIFETIME],
    )
    options = TokenOptions(
        issuer,
        settings[AUDIENCE],
        settings[USER_CLAIM],
        settings[GROUPS_CLAIM],
        settings[LEEWAY],
    )
    return options, place


def read_directory(settings: Settings, etc: Path) -> DirectoryOptions:
    """Return where the directory is, and how users stand in it.

    :param etc: where relative paths begin.
    :raises SettingsError: something is missing, or no address.
    """
    needed: dict[Setting[Any], str] = {
        SERVER: "the directory as HOST:PORT",
        BASE: "the entry below which users are",
        UID_ATTRIBUTE: "the attribute with a user's name",
    }
    if settings[GROUP_SEARCH]:
        needed[GROUP_BASE] = "the entry below which groups are"
    _need(settings, needed, f"{REPOSITORIES.name} has {LDAP}")
    servers = tuple(settings[SERVER].split())
    for place in servers:
        host, colon, port = place.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            expected = "HOST:PORT, or several with blanks between"
            raise SettingsError([settings.problem(SERVER, expected)])
    if settings[USER_FORMAT] not in ("", "dn"):
        raise SettingsError([settings.problem(USER_FORMAT, "dn, or nothing")])
    authorities = settings[AUTHORITIES]
    return DirectoryOptions(
        servers=servers,
        base=settings[BASE],
        uid_attribute=settings[UID_ATTRIBUTE],
        principal=settings[PRINCIPAL],
        password=settings[PASSWORD],
        user_filter=settings[USER_FILTER],
        names_are_dns=settings[USER_FORMAT] == "dn",
        searches_groups=settings[GROUP_SEARCH],
        group_base=settings[GROUP_BASE],
        gid_attribute=settings[GID_ATTRIBUTE],
        member_attribute=settings[MEMBER_ATTRIBUTE],
        group_filter=settings[GROUP_FILTER],
        timeout_s=settings[TIMEOUT],
        tls=settings[ENCRYPTED],
        authorities=etc / authorities if authorities else None,
    )


def _need(settings: Settings, needed: dict[Setting[Any], str], since: str) -> None:
    missing = [setting for setting in needed if not settings[setting]]
    if missing:
        raise SettingsError(
            [settings.problem(setting, f"{needed[setting]}, since {since}") for setting in missing]
        )


def _is_url(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.netloc)
