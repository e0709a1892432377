"""The Debian package under a systemd: installed, used and removed."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging.conftest import DEB
from tests.packaging.machine import PATIENCE, Machine

pytestmark = pytest.mark.process

SERVICE = "stomp-gateway.service"
INSTANCE = "/var/lib/stomp-gateway/instances/imqbroker"
#: A client without a library: sends a message and receives it.
CLIENT = """
import socket, sys
def frame(command, body="", **headers):
    lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items())]
    return "\\n".join(lines).encode() + b"\\n\\n" + body.encode() + b"\\0"
def until(word):
    found = b""
    while word not in found:
        more = client.recv(4096)
        if not more or b"ERROR" in found:
            sys.exit(found.decode())
        found += more
login, passcode = sys.argv[1:]
client = socket.create_connection(("127.0.0.1", 7672), timeout=60)
client.sendall(frame("CONNECT", accept_version="1.2", host="here", login=login, passcode=passcode))
until(b"CONNECTED")
client.sendall(frame("SEND", "hello", destination="/queue/q", persistent="true", receipt="1"))
until(b"RECEIPT")
client.sendall(frame("SUBSCRIBE", destination="/queue/q", id="1"))
until(b"hello")
print("received")
"""


def use(machine: Machine, login: str = "guest", passcode: str = "guest") -> None:
    """Send a message and receive it."""
    done = machine.run("python3", "-c", CLIENT, login, passcode, check=False)
    assert done.stdout == "received\n", done.stdout + done.stderr + state_of(machine)


def shown(machine: Machine, *names: str) -> dict[str, str]:
    """Properties of the service."""
    wanted = [f"--property={name}" for name in names]
    lines = machine.run("systemctl", "show", SERVICE, *wanted).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def state_of(machine: Machine) -> str:
    done = machine.run("journalctl", "--no-pager", "--unit", SERVICE, check=False)
    return done.stdout + machine.run("systemctl", "status", SERVICE, check=False).stdout


def until(machine: Machine, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, state_of(machine)
        time.sleep(0.1)


def drop_in(machine: Machine, text: str) -> None:
    """Change the unit as administrators do."""
    folder = machine.path(f"/etc/systemd/system/{SERVICE}.d")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.conf").write_text(f"[Service]\n{text}\n")
    machine.run("systemctl", "daemon-reload")


@pytest.mark.long
def test_lintian_finds_nothing(package: Path) -> None:
    # Only the package of the tests is not compressed.
    tags = ",".join(f"uses-no-compression-for-{part}-tarball" for part in ("control", "data"))
    options = ["--allow-root", "--suppress-tags", tags]
    done = subprocess.run(
        ["lintian", *options, package],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.long
def test_an_installed_gateway_serves(installed: Machine) -> None:
    assert installed.run("systemctl", "is-active", SERVICE).stdout == "active\n"
    assert installed.run("systemctl", "is-enabled", SERVICE).stdout == "enabled\n"
    assert shown(installed, "StatusText", "Type", "LimitNOFILE") == {
        "StatusText": "clients are served",
        "Type": "notify",
        "LimitNOFILE": "65536",
    }
    use(installed)

    # What root types, the gateway can read.
    installed.path("/tmp/passfile").write_text("imq.imqusermgr.password=secret\n")
    installed.run("chmod", "600", "/tmp/passfile")
    installed.run("chown", "stomp-gateway", "/tmp/passfile")
    installed.run("imqusermgr", "add", "-u", "alice", "-g", "users", "-passfile", "/tmp/passfile")
    owners = installed.run("stat", "-c", "%U %a", f"{INSTANCE}/etc/users").stdout
    assert owners == "stomp-gateway 600\n"
    installed.run("systemctl", "reload", SERVICE)
    log = installed.path(f"{INSTANCE}/log/log.txt")
    until(installed, lambda: "users were read again" in log.read_text())
    use(installed, "alice", "secret")

    words = ("-u", "admin", "-passfile", "/etc/stomp-gateway/passfile")
    assert "7672" in installed.run("imqcmd", "list", "svc", *words).stdout
    folder = "/var/backups/stomp-gateway"
    installed.run("install", "-d", "-m", "700", "-o", "stomp-gateway", folder)
    said = installed.run("imqdbmgr", "backup", "-dir", f"{folder}/monday").stdout
    assert said.startswith(f"{folder}/monday/messages.db has all that")

    # The instance is the link in /etc, and its files are the user's alone.
    assert installed.run("stat", "-c", "%U %a", "/var/lib/stomp-gateway").stdout == (
        "stomp-gateway 700\n"
    )
    assert "imq.bridge.enabled=true" in (
        installed.run("cat", "/etc/stomp-gateway/gateway.properties").stdout
    )
    installed.run("systemctl", "stop", SERVICE)
    assert shown(installed, "Result", "ExecMainStatus") == {
        "Result": "success",
        "ExecMainStatus": "0",
    }
    installed.run("systemctl", "start", SERVICE)


@pytest.mark.long
def test_what_the_unit_forbids_is_forbidden(installed: Machine) -> None:
    """As the kernel sees it, and not as the unit says it."""
    pid = shown(installed, "MainPID")["MainPID"]
    status = dict(
        line.split(":\t", 1)
        for line in installed.run("cat", f"/proc/{pid}/status").stdout.splitlines()
    )
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    assert status["Umask"] == "0077"
    user = installed.run("id", "-u", "stomp-gateway").stdout.strip()
    assert set(status["Uid"].split()) == {user}

    inside = ("nsenter", "-t", pid, "--mount", "--")
    for folder in ("/root", "/home", "/run/user"):
        assert installed.run(*inside, "ls", "-A", folder).stdout == ""
    assert "kmsg" not in installed.run(*inside, "ls", "/dev").stdout
    as_user = (*inside, "setpriv", f"--reuid={user}", "--clear-groups", "--")
    assert installed.run(*inside, "touch", "/usr/x", check=False).stderr.endswith(
        "Read-only file system\n"
    )
    assert installed.run(*inside, "touch", "/etc/x", check=False).returncode == 1
    installed.run(*as_user, "touch", "/var/lib/stomp-gateway/x", "/tmp/x")
    assert not installed.path("/tmp/x").exists()
    # How much memory there is it may see.
    assert "MemTotal" in installed.run(*as_user, "cat", "/proc/meminfo").stdout
    use(installed)


@pytest.mark.long
def test_a_gateway_that_dies_or_hangs_is_started_again(installed: Machine) -> None:
    drop_in(installed, "WatchdogSec=2\nRestartSec=0")
    installed.run("systemctl", "restart", SERVICE)
    for times, how in enumerate(("KILL", "STOP"), 1):
        use(installed)
        installed.run("systemctl", "kill", "--kill-who=main", f"--signal={how}", SERVICE)
        until(
            installed,
            lambda times=times: (  # type: ignore[misc]
                shown(installed, "NRestarts", "ActiveState")
                == {"NRestarts": str(times), "ActiveState": "active"}
            ),
        )
    journal = installed.run("journalctl", "--no-pager", "--unit", SERVICE).stdout
    assert "Watchdog timeout" in journal
    use(installed)
    installed.run("systemctl", "revert", SERVICE)


@pytest.mark.long
def test_a_wrong_setting_is_said_once(installed: Machine) -> None:
    installed.path("/etc/default/stomp-gateway").write_text(
        'STOMP_GATEWAY_OPTIONS="-Dimq.portmapper.port=many"\n'
    )
    done = installed.run("systemctl", "restart", SERVICE, check=False)
    assert done.returncode == 1
    assert shown(installed, "ExecMainStatus", "NRestarts", "ActiveState") == {
        "ExecMainStatus": "2",
        "NRestarts": "0",
        "ActiveState": "failed",
    }
    assert "imq.portmapper.port" in state_of(installed)
    installed.path("/etc/default/stomp-gateway").write_text('STOMP_GATEWAY_OPTIONS=""\n')
    installed.run("systemctl", "restart", SERVICE)


@pytest.mark.long
def test_clients_wait_at_the_socket(installed: Machine) -> None:
    installed.run("systemctl", "stop", SERVICE)
    installed.run("systemctl", "enable", "--now", "stomp-gateway.socket")
    assert installed.run("systemctl", "is-active", SERVICE, check=False).stdout == "inactive\n"
    use(installed)
    assert shown(installed, "ActiveState", "StatusText") == {
        "ActiveState": "active",
        "StatusText": "clients are served",
    }
    # No client is refused while it starts anew.
    before = shown(installed, "MainPID")
    installed.run("systemctl", "restart", "--no-block", SERVICE)
    until(installed, lambda: shown(installed, "MainPID") != before)
    use(installed)
    installed.run("systemctl", "disable", "--now", "stomp-gateway.socket")
    installed.run("systemctl", "restart", SERVICE)


@pytest.mark.long
def test_the_units_are_in_order(installed: Machine) -> None:
    units = [f"/usr/lib/systemd/system/stomp-gateway.{kind}" for kind in ("service", "socket")]
    verified = installed.run("systemd-analyze", "verify", *units)
    assert (verified.stdout, verified.stderr) == ("", "")
    said = installed.run("systemd-analyze", "security", "--offline=true", units[0]).stdout
    level = re.search(r"Overall exposure level for stomp-gateway.service: ([0-9.]+)", said)
    assert level is not None
    # A server on the internet cannot do without its addresses.
    assert float(level[1]) < 2


@pytest.mark.long
def test_it_is_removed_and_purged(installed: Machine) -> None:
    installed.path("/etc/default/stomp-gateway").write_text("STOMP_GATEWAY_OPTIONS=''\n")
    use(installed)
    installed.run("dpkg", "--remove", "stomp-gateway")
    assert installed.run("systemctl", "is-active", SERVICE, check=False).returncode != 0
    assert installed.run("pgrep", "-u", "stomp-gateway", check=False).stdout == ""
    assert not installed.path("/usr/lib/stomp-gateway").exists()
    # What is not of the package stays, and is used again.
    assert installed.path(f"{INSTANCE}/store/messages.db").exists()
    assert installed.path("/etc/default/stomp-gateway").exists()
    installed.run("dpkg", "-i", DEB)
    assert installed.run("systemctl", "is-active", SERVICE).stdout == "active\n"
    use(installed)
    # Once more over itself, as an upgrade.
    installed.run("dpkg", "-i", DEB)
    use(installed)

    installed.run("dpkg", "--purge", "stomp-gateway")
    for name in (
        "/var/lib/stomp-gateway",
        "/etc/default/stomp-gateway",
        "/etc/stomp-gateway",
        "/usr/lib/stomp-gateway",
        "/usr/bin/imqcmd",
        "/etc/systemd/system/multi-user.target.wants/stomp-gateway.service",
    ):
        assert installed.run("ls", "-d", name, check=False).stdout == ""
    assert installed.run("getent", "passwd", "stomp-gateway", check=False).stdout == ""
    assert installed.run("dpkg-query", "-W", "stomp-gateway", check=False).stdout == ""
