"""A collector of spans: ``python -m benchmarks.collector PORT``.

It keeps none. It answers each request as an OpenTelemetry collector does, in a process of its own,
so that what it costs is not the gateway's. At its end it says how many requests and octets came.
"""

from __future__ import annotations

import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class _Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = octets = 0

    def do_POST(self) -> None:
        """Take what came."""
        octets = len(self.rfile.read(int(self.headers["Content-Length"])))
        _Collector.requests += 1
        _Collector.octets += octets
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of single requests."""


def main() -> None:
    """Serve until SIGTERM."""

    def end(*_: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, end)
    try:
        HTTPServer(("127.0.0.1", int(sys.argv[1])), _Collector).serve_forever()
    finally:
        print(f"{_Collector.requests} requests with {_Collector.octets} octets came", flush=True)


if __name__ == "__main__":
    main()
