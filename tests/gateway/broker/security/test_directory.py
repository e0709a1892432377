"""Users and groups of a real LDAP server, Debian's ``slapd``."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import pytest
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import DeferredList

from gateway.broker.properties.repositories import DirectoryOptions
from gateway.broker.security.directory import DirectoryUsers
from gateway.broker.security.users import Principal
from gateway.messaging.errors import AuthenticationFailed
from gateway.messaging.provider import Credentials
from tests.conformance.client import Client
from tests.crash.waiting import until
from tests.gateway_process import HOST, Certificates, GatewayProcess, free_port
from tests.logged import logged_lines
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process
reactor = cast(Any, global_reactor)

_SLAPD: Final = "/usr/sbin/slapd"
_BASE: Final = "dc=example,dc=org"
_PEOPLE: Final = f"ou=people,{_BASE}"
_GROUPS: Final = f"ou=groups,{_BASE}"
_READER: Final = (f"cn=reader,{_BASE}", "reads")

_ENTRIES: Final = f"""\
dn: {_BASE}
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: {_PEOPLE}
objectClass: organizationalUnit
ou: people

dn: {_GROUPS}
objectClass: organizationalUnit
ou: groups

dn: {_READER[0]}
objectClass: person
cn: reader
sn: reader
userPassword: {_READER[1]}

dn: uid=alice,{_PEOPLE}
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: A
employeeType: staff
userPassword: sesame

dn: uid=bob (ext\\2a),{_PEOPLE}
objectClass: inetOrgPerson
uid: bob (ext*)
cn: Bob
sn: B
employeeType: guest
userPassword: b

dn: uid=admin,{_PEOPLE}
objectClass: inetOrgPerson
uid: admin
cn: Admin
sn: A
userPassword: theirs

dn: uid=a,{_PEOPLE}
objectClass: inetOrgPerson
uid: twice
cn: Twice
sn: T
userPassword: one

dn: uid=b,{_PEOPLE}
objectClass: inetOrgPerson
uid: twice
cn: Twice
sn: T
userPassword: one

dn: cn=shop,{_GROUPS}
objectClass: groupOfNames
cn: shop
member: uid=alice,{_PEOPLE}
member: uid=bob (ext\\2a),{_PEOPLE}

dn: cn=admin,{_GROUPS}
objectClass: groupOfNames
cn: admin
description: local
member: uid=alice,{_PEOPLE}
"""


class Directory:
    """A running server with the entries above."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.folder = folder
        self.port, self.tls_port = free_port(), free_port()
        keys = certificates.directory
        (folder / "data").mkdir()
        (folder / "slapd.conf").write_text(
            f"""\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile {keys}/ca.pem
TLSCertificateFile {keys}/server.pem
TLSCertificateKeyFile {keys}/server.key
database mdb
suffix "{_BASE}"
rootdn "cn=root,{_BASE}"
rootpw root
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{_READER[0]}" read by anonymous auth by * none
"""
        )
        (folder / "entries.ldif").write_text(_ENTRIES)
        add = ["/usr/sbin/slapadd", "-f", str(folder / "slapd.conf"), "-l"]
        subprocess.run([*add, str(folder / "entries.ldif")], check=True)
        urls = f"ldap://{HOST}:{self.port} ldaps://{HOST}:{self.tls_port}"
        # A level keeps it from going into the background.
        command = [_SLAPD, "-d", "config", "-f", str(self.folder / "slapd.conf"), "-h", urls]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until(self._answers, "slapd does not answer")

    def _answers(self) -> bool:
        assert self.process.poll() is None, "slapd has ended"
        try:
            socket.create_connection((HOST, self.tls_port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def options(self, **others: Any) -> DirectoryOptions:
        given = {
            "servers": (f"{HOST}:{self.port}",),
            "base": _BASE,
            "uid_attribute": "uid",
            "principal": _READER[0],
            "password": _READER[1],
            "searches_groups": True,
            "group_base": _GROUPS,
            "timeout_s": 5,
        }
        return DirectoryOptions(**{**given, **others})


@pytest.fixture(scope="module")
def directory(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Directory]:
    found = Directory(tmp_path_factory.mktemp("slapd"), certificates)
    yield found
    found.kill()


class Asked:
    """Users of a directory, one test's."""

    def __init__(self, options: DirectoryOptions) -> None:
        self.users = DirectoryUsers(reactor, options, 100)

    async def login(self, name: str, passcode: str) -> Principal | str:
        try:
            return await self.users.authenticate(Credentials(name, passcode, HOST))
        except AuthenticationFailed as error:
            return error.reason
        finally:
            self.users.close()


_UNKNOWN: Final = "unknown user or wrong passcode"
_SILENT: Final = "the directory does not answer"


class Front:
    """Stands before a directory, silent until it is to answer.

    :param drips: an octet of an answer that does not end comes each tenth of a second.
    """

    def __init__(self, directory: Directory, *, drips: bool = False) -> None:
        self.answers = False
        self._directory: Final = directory
        self._drips: Final = drips
        self._listener: Final = socket.create_server((HOST, 0))
        self.place: Final = f"{HOST}:{self._listener.getsockname()[1]}"
        self._sockets: Final[list[socket.socket]] = []
        self._start(self._accept)

    def _start(self, run: Any, *arguments: Any) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            if self.answers:
                server = socket.create_connection((HOST, self._directory.port))
                self._sockets.append(server)
                self._start(self._pump, client, server)
                self._start(self._pump, server, client)
            elif self._drips:
                self._start(self._drip, client)

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while octets := source.recv(65536):
                target.sendall(octets)
            target.shutdown(socket.SHUT_WR)

    @staticmethod
    def _drip(client: socket.socket) -> None:
        with suppress(OSError):
            client.sendall(b"\x30\x84\x00\x10\x00\x00")
            while True:
                client.sendall(b"\x02")
                time.sleep(0.1)

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def front(directory: Directory) -> Iterator[Front]:
    found = Front(directory)
    yield found
    found.close()


@on_reactor
async def test_a_user_logs_in_with_its_groups(directory: Directory) -> None:
    alice = await Asked(directory.options()).login("alice", "sesame")
    assert alice == Principal("alice", frozenset({"shop", "admin"}))
    # The name is the directory's, whatever the client writes: access rules tell upper from lower.
    assert await Asked(directory.options()).login("ALICE", "sesame") == alice
    for options, name, groups in (
        ({"group_filter": "description=local"}, "alice", {"admin"}),
        ({"searches_groups": False}, "alice", set()),
        ({"names_are_dns": True}, f"uid=alice,{_PEOPLE}", {"shop", "admin"}),
        ({"user_filter": "(employeeType=staff)"}, "alice", {"shop", "admin"}),
    ):
        found = await Asked(directory.options(**options)).login("alice", "sesame")
        assert found == Principal(name, frozenset(groups))


@on_reactor
async def test_who_cannot_log_in_is_told_nothing_more(directory: Directory) -> None:
    for name, passcode, options in (
        ("alice", "wrong", {}),
        ("nobody", "sesame", {}),
        ("*", "sesame", {}),
        ("al*", "sesame", {}),
        ("alice)(uid=*", "sesame", {}),
        ("twice", "one", {}),
        ("alice", "sesame", {"user_filter": "employeeType=guest"}),
        ("alice", "sesame", {"base": _GROUPS}),
        ("alice", "\x00", {}),
        ("alice", "\u00ad", {}),
        ("alice", "\ud800", {}),
        ("\ud800", "sesame", {}),
    ):
        assert await Asked(directory.options(**options)).login(name, passcode) == _UNKNOWN, name


@on_reactor
async def test_an_empty_passcode_does_not_reach_the_directory(directory: Directory) -> None:
    # It takes an unauthenticated bind for one that succeeds (RFC 4513, section 5.1.2).
    told = await Asked(directory.options()).login("alice", "")
    assert told == "the login or the passcode is empty"


@on_reactor
async def test_a_name_with_characters_of_filters_is_found(directory: Directory) -> None:
    told = await Asked(directory.options()).login("bob (ext*)", "b")
    assert told == "the directory's name of the user cannot be one here"
    found = await Asked(directory.options(names_are_dns=True)).login("bob (ext*)", "b")
    assert isinstance(found, Principal)
    assert found.groups == {"shop"}


@on_reactor
async def test_tls_is_verified(directory: Directory, certificates: Certificates) -> None:
    tls = {"servers": (f"{HOST}:{directory.tls_port}",), "tls": True}
    trusting = directory.options(**tls, authorities=certificates.ca)
    assert isinstance(await Asked(trusting).login("alice", "sesame"), Principal)
    told = await Asked(directory.options(**tls)).login("alice", "sesame")
    assert told == _SILENT


@on_reactor
async def test_another_server_stands_in(directory: Directory) -> None:
    servers = (f"{HOST}:{free_port()}", f"{HOST}:{directory.port}")
    found = await Asked(directory.options(servers=servers)).login("alice", "sesame")
    assert isinstance(found, Principal)
    none = directory.options(servers=servers[:1])
    assert await Asked(none).login("alice", "sesame") == _SILENT
    wrong = directory.options(password="wrong")
    assert await Asked(wrong).login("alice", "sesame") == "the directory cannot be asked now"


@on_reactor
async def test_a_server_that_hangs_is_asked_last(directory: Directory, front: Front) -> None:
    servers = (front.place, f"{HOST}:{directory.port}")
    users = DirectoryUsers(reactor, directory.options(servers=servers, timeout_s=1), 100)
    alice = Credentials("alice", "sesame", HOST)
    with logged_lines(lambda event: front.place in str(event)) as lines:
        began = time.monotonic()
        # More than there are threads; the first four find out.
        outcomes = await DeferredList([users.authenticate(alice) for _ in range(8)])
        assert [good for good, _ in outcomes] == [True] * 8
        assert 1 <= time.monotonic() - began < 2.5
        began = time.monotonic()
        await users.authenticate(alice)
        assert time.monotonic() - began < 0.9
    users.close()
    (line,) = lines
    assert "does not answer" in line


@on_reactor
async def test_a_server_that_hung_is_found_to_be_well(directory: Directory, front: Front) -> None:
    options = directory.options(servers=(front.place, f"{HOST}:{directory.port}"), timeout_s=1)
    users = DirectoryUsers(reactor, options, 100, rest_s=0)
    alice = Credentials("alice", "sesame", HOST)
    with logged_lines(lambda event: front.place in str(event)) as lines:
        await users.authenticate(alice)
        front.answers = True
        await users.authenticate(alice)
        await users.authenticate(alice)
        front.answers = False
        await users.authenticate(alice)
    users.close()
    assert ["does not" in line for line in lines] == [True, False, True]
    assert lines[1] == f"the directory {front.place} answers again"


@pytest.mark.parametrize("drips", [False, True])
@on_reactor
async def test_a_login_ends_where_nothing_answers(directory: Directory, drips: bool) -> None:
    front = Front(directory, drips=drips)
    # The setting allows more than a login has.
    options = directory.options(servers=(front.place,), timeout_s=280)
    users = DirectoryUsers(reactor, options, 100, within_s=1.5)
    alice = Credentials("alice", "sesame", HOST)
    with logged_lines(lambda event: "directory" in str(event)) as lines:
        began = time.monotonic()
        outcomes = await DeferredList(
            [users.authenticate(alice) for _ in range(8)], consumeErrors=True
        )
        assert time.monotonic() - began < 2.5
        for _, failure in outcomes:
            assert failure.value.reason == _SILENT  # type: ignore[attr-defined]
    assert len(lines) == 1
    # The threads are free again.
    front.answers = True
    began = time.monotonic()
    await users.authenticate(alice)
    assert time.monotonic() - began < 0.9
    users.close()
    front.close()


class Jumps:
    """The reactor, whose clock jumps as soon as something is to happen later."""

    def callLater(self, _: float, call: Any) -> Any:
        call()
        return reactor.callLater(0, str)

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)


@on_reactor
async def test_a_login_whose_time_is_over_early_waits_for_nobody(directory: Directory) -> None:
    front = Front(directory, drips=True)
    users = DirectoryUsers(Jumps(), directory.options(servers=(front.place,), timeout_s=60), 100)
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=_SILENT):
        await users.authenticate(Credentials("alice", "sesame", HOST))
    assert time.monotonic() - began < 2.5
    users.close()
    front.close()


@on_reactor
async def test_many_log_in_at_once_and_too_many_are_refused(directory: Directory) -> None:
    users = DirectoryUsers(reactor, directory.options(), 20)
    logins = [users.authenticate(Credentials("alice", "sesame", HOST)) for _ in range(25)]
    outcomes = await DeferredList(logins, consumeErrors=True)
    assert [good for good, _ in outcomes] == [True] * 20 + [False] * 5
    assert {failure.value.reason for _, failure in outcomes[20:]} == {  # type: ignore[attr-defined]
        "too many logins wait for the directory"
    }
    users.close()


@on_reactor
async def test_clients_that_are_gone_count_and_are_not_looked_up(directory: Directory) -> None:
    with socket.create_server((HOST, 0)) as silent:
        options = directory.options(servers=(f"{HOST}:{silent.getsockname()[1]}",), timeout_s=1)
        users = DirectoryUsers(reactor, options, 20)
        logins = [users.authenticate(Credentials("alice", "x", HOST)) for _ in range(30)]
        for login in logins:
            login.addErrback(lambda _: None)
            login.cancel()
        with pytest.raises(AuthenticationFailed, match="too many logins wait for the directory"):
            await users.authenticate(Credentials("alice", "x", HOST))
        began = time.monotonic()
        # The four that are under way wait for their answers, the others for nothing.
        users.close()
        assert time.monotonic() - began < 5


def test_a_gateway_has_users_of_a_directory_and_of_its_file(
    directory: Directory, tmp_path: Path
) -> None:
    ldap = "imq.user_repository.ldap"
    settings = {
        "imq.authentication.basic.user_repository": "file,ldap",
        f"{ldap}.server": f"{HOST}:{directory.port}",
        f"{ldap}.principal": _READER[0],
        f"{ldap}.base": _BASE,
        f"{ldap}.uidattr": "uid",
        f"{ldap}.grpsearch": "true",
        f"{ldap}.grpbase": _GROUPS,
    }
    with GatewayProcess(tmp_path, settings=settings) as gateway:
        passfile = gateway.directory / "etc" / "passfile"
        passfile.write_text(f"{passfile.read_text()}\n{ldap}.password={_READER[1]}\n")
        rules = gateway.directory / "etc" / "accesscontrol.properties"
        rules.write_text(rules.read_text() + "\nqueue.closed.produce.deny.group=shop\n")
        gateway.restart()
        alice, guest = Client(gateway.port), Client(gateway.port)
        alice.connect(login="alice", passcode="sesame")
        guest.connect()
        guest.put("/queue/closed", "open to guests")
        alice.send("SEND", {"destination": "/queue/closed"}, "x")
        alice.error("alice", "may not")
        guest.close()
        for name, passcode, told in (
            ("alice", "guest", _UNKNOWN),
            ("guest", "sesame", _UNKNOWN),
            ("nobody", "x", _UNKNOWN),
            # The directory has one of that name, and so has the file.
            ("Admin", "theirs", "a user of the file has that name"),
        ):
            other = Client(gateway.port)
            other.send("CONNECT", {"accept-version": "1.2", "login": name, "passcode": passcode})
            other.error(told)
            other.close()
        assert _READER[1] not in gateway.log
        assert "sesame" not in gateway.log
