"""A gateway that has as many files and connections open as it may."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.crash.client import Client, Gone
from tests.crash.waiting import log_of, until, until_logged
from tests.gateway_process import COMMAND, HOST, GatewayProcess

_MOST = 96
#: Sets the limit and becomes the gateway.
_LIMITED = (
    sys.executable,
    "-c",
    f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({_MOST}, {_MOST})); os.execv(sys.argv[1], sys.argv[1:])",
    *COMMAND,
)


def _flood(stack: ExitStack, port: int) -> None:
    """More connections than there is room for."""
    for _ in range(2 * _MOST):
        stack.enter_context(socket.create_connection((HOST, port), timeout=10))


def test_the_log_says_that_connections_are_not_accepted_and_what_to_do(tmp_path: Path) -> None:
    settings = {"imq.bridge.stomp.connect.timeout": "60"}
    with GatewayProcess(tmp_path, settings=settings, command=_LIMITED) as gateway:
        with Client(gateway.port) as before, ExitStack() as stack:
            admin = _admin_port(gateway)
            _flood(stack, gateway.port)
            for port in (gateway.port, admin, gateway.port_mapper_port):
                stack.enter_context(socket.create_connection((HOST, port), timeout=10))
                until_logged(gateway, f"new connections to {HOST}:{port} are not accepted")
            _flood(stack, gateway.port)
            before.store("/queue/descriptors", b"x")
            log = log_of(gateway)
            assert log.count(f"new connections to {HOST}:{gateway.port} are not accepted") == 1, log
            assert (
                f"as many files and connections open as it may, {_MOST}; raise that limit, by 'ulimit -n' or LimitNOFILE"
                in log
            )
            assert "Traceback" not in log, log
        until(
            lambda: len(os.listdir(f"/proc/{gateway.pid}/fd")) < _MOST - 10, "the connections stay"
        )

        def is_served() -> bool:
            # Those of the flood that waited to be accepted come first, and may fill it once more.
            try:
                with Client(gateway.port) as after:
                    after.store("/queue/descriptors", b"y")
            except Gone:
                return False
            return True

        until(is_served, "no client is served again")
        assert gateway.terminate() == 0


def _admin_port(gateway: GatewayProcess) -> int:
    """The admin service's, as the port mapper has it."""
    with socket.create_connection((HOST, gateway.port_mapper_port), timeout=10) as mapper:
        mapper.sendall(b"101\n")
        answer = b"".join(iter(lambda: mapper.recv(4096), b"")).decode()
    return next(
        int(line.split()[3]) for line in answer.splitlines() if line.split()[2:3] == ["ADMIN"]
    )
