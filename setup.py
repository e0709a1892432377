"""Compiles the modules that every message passes, where possible.

All else about the package is in ``setup.cfg``.

mypyc makes C of the same annotated Python that also runs as it is, and the gateway is complete
without. It stays pure Python where mypyc or a C compiler is missing, where ``STOMP_GATEWAY_PURE``
is set in the environment, and in editable installs, whose sources are to change. Why it does is
printed; whether it did, the gateway says when it starts.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

PURE = "STOMP_GATEWAY_PURE"
#: The scripts of others, with their versions, licences and hashes.
BILL = "packaging/vendored.cdx.json"
#: What makes the linker write down a folder.
RPATH = re.compile(r"-Wl,-?-rpath[,=]|(?:-Wl,)?-R,?/")

#: Those on the path of every message. Not here: classes with two base classes (queues), with
#: decorators of Twisted or below those (transports, turns), and errors, which pure modules derive
#: theirs from.
MODULES = [
    "gateway/broker/arrivals/numbering.py",
    "gateway/broker/core/changes.py",
    "gateway/broker/core/consumers/consumer.py",
    "gateway/broker/core/consumers/ledger.py",
    "gateway/broker/core/consumers/origin.py",
    "gateway/broker/core/consumers/unacknowledged.py",
    "gateway/broker/core/delivery/cursor.py",
    "gateway/broker/core/delivery/dispatch.py",
    "gateway/broker/core/delivery/exclusive.py",
    "gateway/broker/core/delivery/groups.py",
    "gateway/broker/core/delivery/hands.py",
    "gateway/broker/core/delivery/pace.py",
    "gateway/broker/core/delivery/ranks.py",
    "gateway/broker/core/delivery/redelivery.py",
    "gateway/broker/core/destinations/queue.py",
    "gateway/broker/core/destinations/queue_pattern.py",
    "gateway/broker/core/destinations/subscription.py",
    "gateway/broker/core/destinations/subscription_end.py",
    "gateway/broker/core/destinations/topic.py",
    "gateway/broker/core/physical.py",
    "gateway/broker/core/waiting/backlog.py",
    "gateway/broker/core/waiting/detached.py",
    "gateway/broker/core/waiting/expiries.py",
    "gateway/broker/core/waiting/lane.py",
    "gateway/broker/core/waiting/memory.py",
    "gateway/broker/core/waiting/sorted_window.py",
    "gateway/broker/durability/batch.py",
    "gateway/broker/durability/commit.py",
    "gateway/broker/durability/full_disk.py",
    "gateway/broker/durability/rows.py",
    "gateway/broker/journal/journal_lines.py",
    "gateway/broker/journal/journey.py",
    "gateway/broker/sessions/connection.py",
    "gateway/broker/sessions/flow.py",
    "gateway/broker/sessions/routing.py",
    "gateway/broker/sessions/session.py",
    "gateway/broker/store/batch_writer.py",
    "gateway/broker/store/checksums.py",
    "gateway/broker/store/interface.py",
    "gateway/broker/acceptance/acceptance.py",
    "gateway/broker/acceptance/one_phase.py",
    "gateway/messaging/destination.py",
    "gateway/messaging/completions.py",
    "gateway/messaging/envelope.py",
    "gateway/messaging/header_lines.py",
    "gateway/messaging/inflight.py",
    "gateway/messaging/message.py",
    "gateway/reactor/polls.py",
    "gateway/reactor/rates.py",
    "gateway/reactor/turn.py",
    "gateway/stomp/header_roles.py",
    "gateway/stomp/message_encoder.py",
    "gateway/stomp/output.py",
    "gateway/stomp/send_plan.py",
    "gateway/stomp/destinations.py",
    "gateway/stomp/client_headers.py",
    "gateway/stomp/session/outstanding.py",
    "gateway/stomp/session/receipts.py",
    "gateway/stomp/session/sending.py",
    "gateway/stomp/session/session.py",
    "gateway/stomp/session/settlement.py",
    "gateway/stomp/session/subscription.py",
    "gateway/stomp/session/subscriptions.py",
    "gateway/stomp/websocket/endpoint.py",
    "gateway/stomp/websocket/frames.py",
    "gateway/stomp/wire/frame.py",
    "gateway/stomp/wire/grammar.py",
    "gateway/stomp/wire/head.py",
    "gateway/stomp/wire/parser.py",
    "gateway/stomp/wire/partial.py",
    "gateway/stomp/wire/serializer.py",
    "gateway/stomp/wire/shapes.py",
    "bridge/providers/jms/batches.py",
    "gateway/tracing/contexts.py",
    "gateway/tracing/otlp.py",
    "gateway/tracing/spans.py",
]

#: setup.py runs for other purposes, too, and for an editable install by none of these.
BUILDING = {"build", "build_ext", "bdist_wheel", "install"}

OPTIONS = [
    # What is installed makes no difference, so that a checkout compiles what a wheel does; nor do
    # the settings in setup.cfg, whose plugin is not there where wheels are built.
    "--config-file=",
    "--no-site-packages",
    "--cache-dir=build/c/cache",
    "--explicit-package-bases",
    "--follow-imports=silent",
    "--ignore-missing-imports",
]


class PureInstead(Exception):
    """Nothing can be compiled, or shall be; the text says why."""


class BuildAllOrNone(build_ext):
    """Builds all compiled modules or none, since they need each other."""

    def build_extensions(self) -> None:
        self._without_search_paths()
        try:
            super().build_extensions()
        except (CCompilerError, BaseError) as error:
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions.clear()
            tell(f"the C compiler failed: {error}")

    def _without_search_paths(self) -> None:
        """Take folders for libraries out of what the linker writes down.

        A Python that is not the system's has the folder of its own library in its flags. The
        modules need no library there, and another machine may have anything in that folder.
        """
        for name in ("linker_so", "linker_so_cxx"):
            flags = getattr(self.compiler, name, None) or []
            setattr(self.compiler, name, [flag for flag in flags if not RPATH.match(flag)])


class WheelWithBill(bdist_wheel):
    """Puts the list of scripts of others where PEP 770 has it."""

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        super().egg2dist(egginfo_path, distinfo_path)
        folder = Path(distinfo_path, "sboms")
        folder.mkdir(exist_ok=True)
        shutil.copy(BILL, folder)


def extensions() -> list[Extension]:
    """Return what is to be compiled; nothing for a pure package."""
    if not BUILDING.intersection(sys.argv):
        return []
    try:
        if os.environ.get(PURE):
            raise PureInstead(f"{PURE} is set")
        if platform.python_implementation() != "CPython":
            raise PureInstead(
                f"mypyc compiles for CPython, and this is {platform.python_implementation()}"
            )
        try_compiler()
        return by_mypyc()
    except PureInstead as why:
        tell(str(why))
        return []


def try_compiler() -> None:
    """Compile next to nothing, before mypyc works for long.

    It comes before the name of the wheel says that it is compiled.

    :raises PureInstead: a C compiler is missing, or Python's headers are.
    """
    # Setuptools has them, and from Python 3.12 on no other package.
    from distutils.ccompiler import new_compiler
    from distutils.sysconfig import customize_compiler

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "trial.c")
        source.write_text("#include <Python.h>\n")
        compiler = new_compiler()
        customize_compiler(compiler)
        try:
            compiler.compile(
                [str(source)], output_dir=folder, include_dirs=[sysconfig.get_path("include")]
            )
        except (CCompilerError, BaseError) as error:
            raise PureInstead(
                f"a C compiler and Python's headers are needed to compile modules: {error}"
            ) from error


def by_mypyc() -> list[Extension]:
    """The C of all modules.

    :raises PureInstead: mypyc is missing, or refuses a module, which newer versions of it may.
    """
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        raise PureInstead(f"mypyc is missing: {error}") from error
    try:
        # The C compiler's first level: the third makes nothing faster here, and takes twice as
        # long.
        made = mypycify(
            [*OPTIONS, *MODULES],
            opt_level="1",
            debug_level="0",
            target_dir="build/c",
            group_name="stomp_gateway",
        )
        return list(made)  # type: ignore[arg-type]
    except SystemExit as ended:
        raise PureInstead("mypyc refuses the modules; it has said why above") from ended


def tell(why: str) -> None:
    print(
        f"stomp-gateway is built in pure Python, which is slower and complete: {why}",
        file=sys.stderr,
    )


setup(
    ext_modules=extensions(), cmdclass={"bdist_wheel": WheelWithBill, "build_ext": BuildAllOrNone}
)
