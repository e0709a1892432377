"""A provider for links whose queues are files.

Sending to a queue appends a line to the file of that name.
"""

import os
import time
from pathlib import Path

from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool

from gateway.messaging.errors import (
    InvalidDestination,
    MessageRejected,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.provider import Capabilities


def provider(config, reactor):
    return Files(Path(config.properties["directory"]), reactor)


class Files:
    capabilities = Capabilities()

    def __init__(self, directory, reactor):
        self.directory = directory
        self.resource = f"files:{directory}"
        self.reactor = reactor

    def connect(self, credentials, client_id, lost):
        return succeed(Connection(self))


class Connection:
    client_id = None
    product = "files"
    administers = False

    def __init__(self, files):
        self.files = files

    def session(self, mode):
        return Session(self.files)

    def close(self):
        return succeed(None)


class Session:
    def __init__(self, files):
        self.files = files
        self.sent = []
        # One batch is written after the other.
        self.written = succeed(None)

    def send(self, messages):
        for index, message in enumerate(messages):
            name = message.headers.destination.name
            if "/" in name or name.startswith("."):
                raise MessageRejected(
                    index,
                    InvalidDestination(
                        message.headers.destination, "this cannot be the name of a file"
                    ),
                )
        for message in messages:
            message.message_id = message.message_id or os.urandom(16).hex()
            message.timestamp = message.timestamp or time.time_ns() // 1_000_000
        self.sent += messages

    def writable(self):
        return True

    def on_writable(self, resume):
        self.files.reactor.callLater(0, resume)

    def completion(self, done):
        sent, self.sent = self.sent, []
        pool = self.files.reactor.getThreadPool()

        def write(_):
            return deferToThreadPool(self.files.reactor, pool, append, self.files.directory, sent)

        def written(_):
            done(None)

        def failed(failure):
            done(ProviderUnavailable(f"files in {self.files.directory}: {failure.value}"))

        # Never from inside this call.
        soon = Deferred()
        self.files.reactor.callLater(0, soon.callback, None)
        self.written = (
            self.written.addCallback(lambda _: soon)
            .addCallback(write)
            .addCallbacks(written, failed)
        )

    def consumer(self, spec, deliver, failed):
        raise NotSupported("receiving from files")

    def close(self):
        pass


def append(directory, messages):
    """On a thread: nothing may hold up the reactor."""
    for message in messages:
        with open(directory / message.headers.destination.name, "ab") as file:
            file.write(message.body.replace(b"\n", b"\\n") + b"\n")
            file.flush()
            os.fsync(file.fileno())
