"""``imqkeytool`` as an operator types it: what it does, what it prints, how it ends."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from certs.authority import alternative_names, common_name, units_of
from certs.command import run
from certs.files import read_certificates, read_key, read_revocation_lists

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "tls"


class Tool:
    """The command on one key store, at a given time."""

    def __init__(self, tls: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._tls = tls
        self._capsys = capsys

    def __call__(self, *arguments: str, at: datetime = NOW) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = run([*arguments, "--dir", str(self._tls)], at)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def tool(tls: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(tls, capsys)


def test_server_makes_all_that_a_listener_needs(tool: Tool, tls: Path) -> None:
    code, out, err = tool(
        "server", "--dns", "broker.example", "--dns", "localhost", "--ip", "10.0.0.1", "--ip", "::1"
    )
    assert (code, err) == (0, "")
    assert "until 2027-03-01" in out
    (certificate,) = read_certificates(tls / "server.pem")
    assert common_name(certificate) == "broker.example"
    assert alternative_names(certificate) == [
        x509.DNSName("broker.example"),
        x509.DNSName("localhost"),
        x509.IPAddress(ip_address("10.0.0.1")),
        x509.IPAddress(ip_address("::1")),
    ]
    certificate.verify_directly_issued_by(read_certificates(tls / "ca.pem")[0])
    assert (tls / "crl.pem").exists()


def test_the_originals_spelling_and_this_machines_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["broker", "-varhome", str(tmp_path), "-i", "one"], NOW) == 0
    (certificate,) = read_certificates(
        tmp_path / "instances" / "one" / "etc" / "tls" / "server.pem"
    )
    names = alternative_names(certificate)
    assert x509.DNSName("localhost") in names
    assert x509.IPAddress(ip_address("127.0.0.1")) in names
    assert "Made" in capsys.readouterr().out


def test_client_options(tool: Tool, tls: Path) -> None:
    assert tool("ca", "--name", "My CA", "--days", "1000")[0] == 0
    assert common_name(read_certificates(tls / "ca.pem")[0]) == "My CA"
    assert tool("client", "--name", "alice", "--days", "7", "--key", "rsa")[0] == 0
    (certificate,) = read_certificates(tls / "clients" / "alice.pem")
    assert common_name(certificate) == "alice"
    assert certificate.not_valid_after_utc == NOW + timedelta(days=7)
    assert isinstance(certificate.public_key(), rsa.RSAPublicKey)


def test_groups_of_a_client_are_organizational_units(tool: Tool, tls: Path) -> None:
    tool("ca")
    assert tool("client", "--name", "alice", "--group", "shop", "--group", "staff")[0] == 0
    path = tls / "clients" / "alice.pem"
    assert units_of(read_certificates(path)[0]) == ["shop", "staff"]
    assert tool("renew", "alice")[0] == 0
    assert units_of(read_certificates(path)[0]) == ["shop", "staff"]
    code, _, err = tool("client", "--name", "bob", "--group", " shop")
    assert (code, err.count("expected a name")) == (1, 1)


def test_what_exists_is_replaced_by_force_only(tool: Tool, tls: Path) -> None:
    assert tool("server", "--dns", "a.example")[0] == 0
    before = (tls / "server.pem").read_bytes()
    code, out, err = tool("server", "--dns", "b.example")
    assert (code, out) == (1, "")
    assert err == f"imqkeytool: {tls}/server.pem exists; --force replaces it\n"
    assert (tls / "server.pem").read_bytes() == before
    assert tool("server", "--dns", "b.example", "--force")[0] == 0
    assert (tls / "server.pem").read_bytes() != before


def test_check_exits_with_1_when_something_ends_within_the_days(tool: Tool, tls: Path) -> None:
    tool("server", "--dns", "a.example", "--days", "100")
    tool("client", "--name", "alice", "--days", "50")
    assert tool("check") == (0, "", "")
    assert tool("check", at=NOW + timedelta(days=19)) == (0, "", "")
    code, out, err = tool("check", at=NOW + timedelta(days=20))
    assert (code, err) == (1, "")
    assert out == f"alice: {tls}/clients/alice.pem expires on 2026-04-20, in 30 days\n"
    assert tool("check", "--days", "0", at=NOW + timedelta(days=49)) == (0, "", "")
    code, out, _ = tool("check", "--days", "0", at=NOW + timedelta(days=50))
    assert code == 1
    assert out == f"alice: {tls}/clients/alice.pem expired on 2026-04-20\n"
    code, out, _ = tool("check", "--days", "100")
    assert code == 1
    assert [line.split(":")[0] for line in out.splitlines()] == ["alice", "server"]
    code, out, _ = tool("check", "--days", "4000")
    assert {line.split(":")[0] for line in out.splitlines()} == {"alice", "server", "ca", "crl"}


def test_check_leaves_revoked_certificates_out(tool: Tool) -> None:
    tool("server", "--dns", "a.example")
    tool("client", "--name", "alice", "--days", "5")
    assert tool("check")[0] == 1
    tool("revoke", "alice")
    assert tool("check") == (0, "", "")


def test_check_tells_of_a_revoked_server_certificate(tool: Tool, tls: Path) -> None:
    tool("server", "--dns", "a.example")
    assert "imqkeytool server --force" in tool("revoke", "server")[1]
    told = f"server: {tls}/server.pem was revoked on 2026-03-01; imqkeytool server --force makes a new one\n"
    assert tool("check") == (1, told, "")
    tool("server", "--dns", "a.example", "--force")
    assert tool("check") == (0, "", "")


def test_check_exits_with_2_when_it_cannot_tell(tool: Tool, tls: Path) -> None:
    assert tool("check") == (2, "", f"imqkeytool: {tls} has no certificates\n")
    tool("server", "--dns", "a.example")
    (tls / "server.pem").write_text("rubbish")
    code, out, err = tool("check")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{tls}/server.pem: expected certificates in PEM" in err


def test_renew_and_revoke(tool: Tool, tls: Path) -> None:
    tool("server", "--dns", "a.example")
    tool("client", "--name", "alice")
    later = NOW + timedelta(days=360)
    code, out, err = tool("renew", "alice", at=later)
    assert (code, err) == (0, "")
    assert "Renewed alice, valid until 2028-02-24." in out
    serials = {read_certificates(tls / "clients" / "alice.pem")[0].serial_number}
    code, out, err = tool("revoke", "alice", "--reason", "key-compromise", at=later)
    assert (code, err) == (0, "")
    assert out.count("Revoked alice") == 2
    (revocations,) = read_revocation_lists(tls / "crl.pem")
    assert serials < {revoked.serial_number for revoked in revocations}
    code, out, err = tool("renew", "alice", at=later)
    assert (code, out, err) == (
        1,
        "",
        f"imqkeytool: {tls}/clients/alice.pem is revoked; make a new one\n",
    )
    assert tool("client", "--name", "alice", at=later)[0] == 0


def test_list(tool: Tool, tls: Path) -> None:
    assert tool("list") == (1, "", f"imqkeytool: {tls} has no certificates\n")
    tool("server", "--dns", "a.example", "--ip", "::1")
    tool("client", "--name", "alice", "--days", "5")
    tool("client", "--name", "bob")
    tool("revoke", "bob")
    code, out, _ = tool("list", at=NOW + timedelta(days=6))
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[0] == ["NAME", "KIND", "UNTIL", "STATE", "SERIAL", "FOR"]
    assert lines[1][:4] == ["ca", "ca", "2036-02-27", "valid"]
    assert lines[2][:4] == ["server", "server", "2027-03-01", "valid"]
    assert lines[2][5] == "a.example,::1"
    assert lines[3][:4] == ["alice", "client", "2026-03-06", "expired"]
    assert lines[4][:5] == ["bob", "client", "2027-03-01", "revoked", "2026-03-01"]


def test_the_passfile_encrypts_the_keys(tool: Tool, tls: Path, tmp_path: Path) -> None:
    passfile = tmp_path / "passwords"
    passfile.touch(0o600)
    passfile.write_text("imq.keystore.password=sesame\n")
    assert tool("server", "--dns", "a.example", "-passfile", str(passfile))[0] == 0
    assert read_key(tls / "server.key", b"sesame")
    code, out, err = tool("client", "--name", "alice")
    assert (code, out) == (1, "")
    assert err == f"imqkeytool: {tls}/ca.key: is encrypted, and imq.keystore.password is not set\n"
    passfile.rename(tls.parent / "passfile")  # the instance's own is found
    assert tool("client", "--name", "alice")[0] == 0
    passfile.touch(0o600)
    code, _, err = tool("client", "--name", "bob", "--passfile", str(passfile))
    assert (code, err) == (1, f"imqkeytool: {passfile} has no imq.keystore.password\n")


def test_a_clients_passphrase_is_asked_for(
    tool: Tool, tls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["bob's own", "bob's own"])
    monkeypatch.setattr("click.termui.hidden_prompt_func", lambda prompt: next(answers))
    tool("ca")
    code, out, _ = tool("client", "--name", "bob", "--passphrase")
    assert code == 0
    assert "bob's own" not in out
    assert read_key(tls / "clients" / "bob.key", b"bob's own")


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["server", "--dns", "b\u00e4h"],
        ["server", "--ip", "1.2.3"],
        ["server", "--days", "0"],
        ["client"],
        ["client", "--name", "a", "--key", "dsa"],
        ["revoke"],
        ["revoke", "a", "--reason", "whim"],
        ["check", "--days", "soon"],
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    tool: Tool, tls: Path, arguments: list[str]
) -> None:
    code, out, err = tool(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("imqkeytool: ")
    assert not tls.exists()


def test_which_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("IMQ_VARHOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run(["ca"], NOW) == 0
    assert (tmp_path / "var" / "instances" / "imqbroker" / "etc" / "tls" / "ca.pem").exists()
    monkeypatch.setenv("IMQ_VARHOME", str(tmp_path / "env"))
    assert run(["ca", "-i", "one"], NOW) == 0
    assert (tmp_path / "env" / "instances" / "one" / "etc" / "tls" / "ca.pem").exists()
    capsys.readouterr()
    assert run(["ca", "--varhome", str(tmp_path), "-i", "../other"], NOW) == 2
    assert capsys.readouterr().err == "imqkeytool: '../other' cannot be the name of an instance\n"


def test_check_tells_of_a_missing_or_old_revocation_list_and_crl_makes_it_anew(
    tool: Tool, tls: Path
) -> None:
    tool("server", "--dns", "localhost")
    tool("client", "--name", "alice")
    old = (tls / "crl.pem").read_bytes()
    tool("revoke", "alice")
    number = _number(tls)
    assert tool("check") == (0, "", "")
    for damage in (None, old):
        (tls / "crl.pem").unlink() if damage is None else (tls / "crl.pem").write_bytes(damage)
        code, out, err = tool("check")
        assert (code, err) == (1, "")
        assert out.startswith(f"{tls}/crl.pem: is {'missing' if damage is None else 'older'}")
        assert f"imqkeytool crl --dir {tls}\n" in out
        code, out, err = tool("crl")
        assert (code, err) == (0, "")
        assert "it has 1 revoked certificate." in out
        assert tool("check") == (0, "", "")
        number, before = _number(tls), number
        assert number > before
    (tls / "crl.pem").write_text("rubbish")
    assert tool("check")[0] == 2
    assert tool("crl")[0] == 0
    assert tool("check") == (0, "", "")


def test_what_is_on_the_list_stays_there_when_the_register_is_lost(tool: Tool, tls: Path) -> None:
    tool("server", "--dns", "localhost")
    tool("client", "--name", "alice")
    tool("revoke", "alice", "--reason", "key-compromise")
    (revocations,) = read_revocation_lists(tls / "crl.pem")
    (before,), number = list(revocations), _number(tls)
    (tls / "register.json").unlink()
    code, out, _err = tool("check")
    assert code == 1
    assert out.startswith(
        f"{tls}/register.json: is missing. The 1 certificate on {tls}/crl.pem stay"
    )
    code, _out, err = tool("crl")
    assert code == 1
    assert "register.json does not exist" in err
    tool("client", "--name", "bob")
    tool("revoke", "bob")
    (revocations,) = read_revocation_lists(tls / "crl.pem")
    entries = list(revocations)
    assert len(entries) == 2
    assert any(
        entry.serial_number == before.serial_number
        and list(entry.extensions) == list(before.extensions)
        for entry in entries
    )
    assert _number(tls) > number


def test_half_an_authority_is_told_what_is_missing(tool: Tool, tls: Path) -> None:
    tool("ca")
    (tls / "ca.key").rename(tls / "kept")
    code, _out, err = tool("server")
    assert code == 1
    assert "ca.key does not exist; restore it" in err
    (tls / "kept").rename(tls / "ca.key")
    (tls / "ca.pem").unlink()
    code, _out, err = tool("client", "--name", "alice")
    assert code == 1
    assert "ca.key does; restore the certificate" in err
    assert "imqkeytool ca --force" in err


def _number(tls: Path) -> int:
    (revocations,) = read_revocation_lists(tls / "crl.pem")
    return revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
