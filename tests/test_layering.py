"""The house's rules that a machine can keep: who may import whom, names, sizes.

``ROOMS`` is the table of who may import whom; a module that belongs to no room fails, so that a new
one is given its place on purpose. Every import counts, also one inside a function or for type
checking only: a layer that is known is known.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx
import pytest

from tests.hot_modules import hot_modules

ROOT = Path(__file__).parents[1]
PACKAGES = ("gateway", "bridge", "certs", "pipeline")
LONGEST = 600


@dataclass(frozen=True)
class Room:
    """What the modules of a room may import of ours, besides each other and the package ``gateway``
    itself, which has the version only.

    :param stdlib_only: nothing that must be installed, either.
    :param root: the composition root, the only place that may have the global reactor.
    """

    imports: tuple[str, ...] = ()
    stdlib_only: bool = False
    root: bool = False


BELOW = (
    "gateway.messaging",
    "gateway.instance",
    "gateway.instance.command_end",
    "gateway.reactor",
    "gateway.journal",
    "gateway.journal.journal",
    "gateway.journal.contents",
)
EVERYTHING = (
    *BELOW,
    "gateway.broker",
    "gateway.front",
    "gateway.stomp",
    "gateway.stomp.brokers",
    "gateway.stomp.wire",
    "gateway.admin",
    "gateway.tracing",
    "bridge",
    "certs",
)
COMPOSITION_MODULES = (
    "gateway.admin.assembly",
    "gateway.app",
    "gateway.bridge_definitions",
    "gateway.bridges",
    "gateway.central",
    "gateway.cluster",
    "gateway.cluster_configurations",
    "gateway.tap",
    "gateway.command",
    "gateway.configuration",
    "gateway.dbmgr",
    "gateway.transformer_loading",
    "gateway.opened_broker",
    "gateway.ownership",
    "gateway.exit_codes",
    "gateway.fronts",
    "gateway.link_balances",
    "gateway.repositories",
    "gateway.rereading",
    "gateway.shared_files",
    "gateway.standing_orders",
    "gateway.store_copies",
    "gateway.tls",
    "gateway.transaction_log",
)
COMPOSITION = Room((*EVERYTHING, *COMPOSITION_MODULES), root=True)

#: The room of a module is that of the longest name here that is the module's own or one of a
#: package around it.
ROOMS: Mapping[str, Room] = {
    **dict.fromkeys(COMPOSITION_MODULES, COMPOSITION),
    # It may see all that it administers.
    "gateway.admin": Room((*EVERYTHING,)),
    "gateway.stomp": Room((*BELOW, "gateway.stomp.brokers", "gateway.stomp.wire")),
    "bridge": Room((*BELOW, "gateway.stomp.brokers")),
    "gateway.broker": Room(BELOW),
    # The embedded broker knows the users of the other ones.
    "gateway.front": Room((*BELOW, "gateway.broker")),
    "gateway.messaging": Room(),
    "gateway.instance": Room(("gateway.instance.command_end",)),
    # All commands end in one way.
    "gateway.instance.command_end": Room(stdlib_only=True),
    "gateway.reactor": Room(),
    "gateway.journal": Room(stdlib_only=True),
    "gateway.journal.journal": Room(("gateway.instance", "gateway.journal")),
    "gateway.journal.contents": Room(("gateway.messaging", "gateway.journal")),
    "gateway.tracing": Room(
        ("gateway.instance", "gateway.journal", "gateway.messaging", "gateway.reactor")
    ),
    # The one table of brokers, for the bridge and the pipeline, too.
    "gateway.stomp.brokers": Room(stdlib_only=True),
    "gateway.stomp.wire": Room(stdlib_only=True),
    "certs": Room(("gateway.instance.command_end",)),
    # The codec of STOMP is a leaf without I/O, and is not written a second time for the data
    # source.
    "pipeline": Room(
        (
            "gateway.messaging",
            "gateway.instance.command_end",
            # A statement says of which journal it is.
            "gateway.journal.chain",
            "gateway.journal.runs",
            "gateway.journal.schema",
            "gateway.stomp.brokers",
            "gateway.stomp.wire",
        )
    ),
}

#: Words that say only that a thing does something. The bridge service manager has its name from the
#: original's documentation.
EMPTY_WORDS = frozenset({"manager", "handler", "processor", "engine", "helper", "util"})
ALLOWED_NAMES = frozenset({"bridge.manager", "BridgeServiceManager"})

#: Circles of modules that are allowed, each with a reason in a comment.
CIRCLES: frozenset[frozenset[str]] = frozenset()


def within(module: str, around: str) -> bool:
    return module == around or module.startswith(around + ".")


def room_of(module: str) -> str | None:
    """The name in ROOMS that a module belongs to."""
    around = [room for room in ROOMS if within(module, room)]
    return max(around, key=len, default=None)


@cache
def named(source: str) -> tuple[list[ast.Import | ast.ImportFrom], list[ast.ClassDef]]:
    """Imports and classes of a module, wherever in it they stand."""
    nodes = list(ast.walk(ast.parse(source)))
    return (
        [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)],
        [node for node in nodes if isinstance(node, ast.ClassDef)],
    )


def imported(module: str, source: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports; of ``from a import b`` it is ``a.b``,
    be b a module or not.
    """
    for node in named(source)[0]:
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        else:
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = len(parts) - node.level + (1 if is_package else 0)
                base = ".".join([*parts[:kept], *([node.module] if node.module else [])])
            for name in node.names:
                yield node.lineno, f"{base}.{name.name}"


def import_violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module imports that its room may not."""
    name = room_of(module)
    names = list(imported(module, source, is_package))
    if name is None:
        if module == "gateway":
            return [
                f"gateway:{line}: imports {target}; this package has the version only"
                for line, target in names
                if ours(target)
            ]
        return [f"{module} belongs to no room: give it one in ROOMS"]
    room = ROOMS[name]
    found = []
    for line, target in names:
        if target.startswith("__future__."):
            continue
        where = f"{module}:{line}: imports {target}"
        if ours(target):
            theirs = room_of(target)
            # To be let into a package is not to be let into a room of its own inside it.
            allowed = theirs in (None, name) or any(
                within(target, one) and room_of(one) == theirs for one in room.imports
            )
            if not allowed:
                found.append(
                    f"{where}; {name} may import {', '.join(room.imports) or 'nothing of ours'}"
                )
        elif room.stdlib_only and target.split(".")[0] not in sys.stdlib_module_names:
            found.append(f"{where}; {name} uses the standard library only")
        elif target == "twisted.internet.reactor" and not room.root:
            found.append(f"{where}; below the composition root the reactor is a parameter")
    return found


def ours(target: str) -> bool:
    return target.split(".")[0] in PACKAGES


def circles(sources: Mapping[str, tuple[str, bool]], packages: bool = False) -> set[frozenset[str]]:
    """Return the sets of modules of which each imports, directly or through others, every other
    one.

    :param sources: by the name of a module its source, and whether it is a package.
    :param packages: return such sets of packages.
    """

    def place(module: str) -> str:
        return module.rpartition(".")[0] if packages and not sources[module][1] else module

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for module, (source, is_package) in sources.items():
        for _, target in imported(module, source, is_package):
            while target and target not in sources:
                target = target.rpartition(".")[0]
            if target and place(target) != place(module):
                graph.add_edge(place(module), place(target))
    return {
        frozenset(found)
        for found in networkx.strongly_connected_components(graph)
        if len(found) > 1
    }


def empty_names(module: str, source: str) -> list[str]:
    """Names of classes, and of the module, that say only that a thing does something."""
    names = [module] + [node.name for node in named(source)[1]]
    found = []
    for name in names:
        last = name.rsplit(".", 1)[-1]
        words = {
            word.lower().removesuffix("s")
            for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", last)
        }
        if words & EMPTY_WORDS and name not in ALLOWED_NAMES:
            found.append(f"{module}: the name {last} says only that it does something")
    return found


def derived_from_compiled(sources: Mapping[str, str], compiled: Collection[str]) -> list[str]:
    """Classes of modules that are not compiled whose base class is compiled.

    There can be no objects of them. A protocol may be such a base: nothing is made of it.

    :param sources: by the name of a module its source.
    """
    bases = {
        (module, node.name)
        for module in compiled
        for node in named(sources[module])[1]
        if not {"Protocol", "NamedTuple"} & {ast.unparse(base) for base in node.bases}
    }
    found = []
    for module in sources.keys() - set(compiled):
        imports, classes = named(sources[module])
        names = {
            (name.asname or name.name): (node.module or "", name.name)
            for node in imports
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        found += [
            f"{module}.{node.name} derives from {'.'.join(names[base])}, which is compiled"
            for node in classes
            for base in (ast.unparse(one).split("[")[0] for one in node.bases)
            if names.get(base) in bases
        ]
    return sorted(found)


def modules() -> Iterator[tuple[str, str, bool]]:
    """Name and source of every module of ours, and whether it is a package."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            yield (
                ".".join(parts[:-1] if is_package else parts),
                path.read_text(encoding="utf-8"),
                is_package,
            )


def test_there_is_something_to_look_at() -> None:
    names = {name for name, _, _ in modules()}
    assert {"gateway", "gateway.messaging.provider", "gateway.stomp.wire.frame", "certs"} <= names


def test_imports_go_downwards_only() -> None:
    assert [found for module in modules() for found in import_violations(*module)] == []


def test_no_circle_of_modules_is_new() -> None:
    """A circle's modules cannot be understood, tested or moved one at a time."""
    found = circles({name: (source, is_package) for name, source, is_package in modules()})
    assert {", ".join(sorted(circle)) for circle in found} == {
        ", ".join(sorted(circle)) for circle in CIRCLES
    }


def test_the_brokers_packages_stand_above_what_they_import() -> None:
    """Whoever reads one needs only those below it."""
    sources = {
        name: (source, is_package)
        for name, source, is_package in modules()
        if within(name, "gateway.broker")
    }
    # The store opens itself by its own checks.
    assert circles(sources, packages=True) == {
        frozenset({"gateway.broker.store", "gateway.broker.store.integrity"})
    }


def test_a_circle_is_found() -> None:
    sources = {
        "bridge": ("", True),
        "bridge.a": ("from bridge.b import B", False),
        "bridge.b": (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bridge.c import C",
            False,
        ),
        "bridge.c": ("def late():\n    from .a import A", False),
        "bridge.d": ("from bridge import a", False),
    }
    assert circles(sources) == {frozenset({"bridge.a", "bridge.b", "bridge.c"})}


def test_a_circle_of_packages_is_found() -> None:
    sources = {
        "bridge": ("", True),
        "bridge.a": ("from bridge.b.c import C", False),
        "bridge.b": ("", True),
        "bridge.b.c": ("", False),
        "bridge.b.d": ("from bridge.e import E", False),
        "bridge.e": ("", False),
    }
    assert circles(sources) == set()
    assert circles(sources, packages=True) == {frozenset({"bridge", "bridge.b"})}


def test_names_say_what_a_thing_is() -> None:
    assert [found for name, source, _ in modules() for found in empty_names(name, source)] == []


def test_modules_are_not_long() -> None:
    lines = {name: len(source.splitlines()) for name, source, _ in modules()}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}


def test_modules_say_what_they_own() -> None:
    assert [name for name, source, _ in modules() if not source.startswith(('"""', 'r"""'))] == []


def test_no_class_derives_from_a_compiled_one() -> None:
    sources = {name: source for name, source, _ in modules()}
    assert derived_from_compiled(sources, hot_modules()) == []


def test_a_class_that_derives_from_a_compiled_one_is_found() -> None:
    sources = {
        "bridge.hot": "class A: ...\nclass P(Protocol): ...",
        "bridge.too": "from bridge.hot import A\nclass B(A): ...",
        "bridge.pure": "from bridge.hot import A, P\nclass C(A): ...\nclass D(P): ...",
    }
    assert derived_from_compiled(sources, ["bridge.hot", "bridge.too"]) == [
        "bridge.pure.C derives from bridge.hot.A, which is compiled"
    ]


def test_the_plugin_names_its_module_by_string() -> None:
    plugins = ROOT / "twisted" / "plugins"
    assert [path.name for path in plugins.parent.rglob("__init__.py")] == []
    for path in plugins.glob("*.py"):
        targets = [target for _, target in imported(path.stem, path.read_text(encoding="utf-8"))]
        assert [target for target in targets if ours(target)] == [], path


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gateway.messaging.message", "from gateway.instance import settings"),
        (
            "gateway.messaging.message",
            "def late():\n    import gateway.broker.core.destinations.queue",
        ),
        ("gateway.messaging.message", "from gateway.reactor.turn import Turn"),
        ("gateway.instance.logs", "from ..broker import queue"),
        ("gateway.reactor.turn", "from gateway.messaging.errors import MessagingError"),
        ("gateway.broker.core.destinations.queue", "from gateway.stomp.wire.frame import Frame"),
        ("gateway.broker.core.destinations.queue", "from gateway import app"),
        ("gateway.broker.core.destinations.queue", "import certs.contexts"),
        ("gateway.stomp.service", "from bridge.link import Link"),
        ("gateway.stomp.service", "from gateway.broker.provider import EmbeddedProvider"),
        ("gateway.stomp.wire.parser", "from gateway.stomp.session import table"),
        ("gateway.stomp.wire.parser", "from gateway.messaging.message import Message"),
        ("gateway.stomp.wire.parser", "import twisted.internet.protocol"),
        ("gateway.stomp.brokers", "from gateway.messaging.provider import Capabilities"),
        ("bridge.link", "from gateway.stomp.wire import parser"),
        ("certs.command", "from gateway.instance.settings import Setting"),
        ("gateway.app", "from pipeline.transforms import dead"),
        ("pipeline.source", "from gateway.journal.writer import Writer"),
        ("pipeline.source", "from gateway.stomp.send_plan import to_message"),
        ("gateway.journal.writer", "import lark"),
        ("gateway.broker.broker", "from twisted.internet import reactor"),
        ("gateway.newcomer", "import os"),
        ("gateway", "from gateway.app import build"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str) -> None:
    assert len(import_violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gateway.messaging.provider", "from gateway.messaging.errors import MessagingError"),
        ("gateway.messaging.provider", "from .errors import MessagingError"),
        ("gateway.broker.core.destinations.queue", "from gateway.messaging import errors, message"),
        (
            "gateway.stomp.session.session",
            "from gateway.stomp.wire.frame import Frame\nfrom gateway.stomp.send_plan import to_message",
        ),
        ("gateway.stomp.session.connected", "from gateway import __version__"),
        (
            "gateway.app",
            "from twisted.internet import reactor\nfrom bridge import manager\nfrom gateway.stomp.wire import frame\nimport certs",
        ),
        ("pipeline.source", "from gateway.journal.schema import COLUMNS\nimport pyspark"),
        ("pipeline.source", "from gateway.stomp.wire import FrameParser"),
        ("bridge.link", "from gateway.stomp.brokers import recognise"),
        (
            "bridge.link",
            "from gateway.messaging.provider import Session\nfrom bridge.config import reader",
        ),
    ],
)
def test_a_right_import_is_let_through(module: str, source: str) -> None:
    assert import_violations(module, source) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gateway.broker.utils", ""),
        ("gateway.broker.core.destinations.queue", "class QueueManager: ..."),
        ("gateway.stomp.frame_handlers", ""),
        ("gateway.stomp.service", "class Outer:\n    class XAEngine: ..."),
    ],
)
def test_an_empty_name_is_found(module: str, source: str) -> None:
    assert len(empty_names(module, source)) == 1
