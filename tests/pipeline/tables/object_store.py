"""An object store on loopback that speaks S3.

It is moto, in a process of its own, as delta-rs waits for it without giving other threads of its
process a turn. It says its port
in its first line, and ends when its standard input does. A line with a path and a JSON text there
has somebody else be first: just before the next object is put to that path, there is one with that
text.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BUCKET: Final = "tables"
KEY: Final = "somebody"
SECRET: Final = "something"


@dataclass
class ObjectStore:
    """One that runs."""

    process: subprocess.Popen[str]
    address: str

    def rival(self, key: str, text: str) -> None:
        """Somebody else puts this text there just before the next who does."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"/{BUCKET}/{key} {json.dumps(text)}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ready\n"


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Run one that has an empty bucket."""
    with (folder / "moto.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port.isdigit(), (folder / "moto.log").read_text()
            yield ObjectStore(process, f"http://127.0.0.1:{port}")
        finally:
            process.communicate()


class _Store:
    """moto's application, with rivals."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._app: Final = DomainDispatcherApplication(create_backend_app)
        self.rivals: Final[dict[str, str]] = {}

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] == "PUT" and (text := self.rivals.pop(path, None)):
            from moto.s3.models import s3_backends

            _, bucket, key = path.split("/", 2)
            s3_backends["123456789012"]["aws"].put_object(bucket, key, text.encode())
        return self._app(environ, start)


def main() -> None:
    """Serve until the standard input ends."""
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server

    store = _Store()
    s3_backends["123456789012"]["aws"].create_bucket(BUCKET, "us-east-1")
    server = make_server("127.0.0.1", 0, store, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    for line in sys.stdin:
        path, _, text = line.partition(" ")
        store.rivals[path] = json.loads(text)
        print("ready", flush=True)


if __name__ == "__main__":
    main()
