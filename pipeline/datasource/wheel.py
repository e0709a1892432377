"""The wheel ``pyspark-stomp``: the data source and nothing else.

Owns what is in it. Spark imports every package whose name begins with ``pyspark_`` and takes its
``DefaultSource``, so that ``format("stomp")`` needs no ``register``. What that class imports of
this tree is found by following imports, and lies below ``pyspark_stomp._vendor`` under names of its
own: a process may have this wheel and the gateway's, of other versions, too.

``make wheels`` calls it, in a checkout; it needs neither setuptools nor a compiler.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from base64 import urlsafe_b64encode
from configparser import ConfigParser
from hashlib import sha256
from pathlib import Path
from typing import Final

from gateway import __version__

_ROOT: Final = Path(__file__).parents[2]
_PACKAGE: Final = "pyspark_stomp"
_VENDOR: Final = f"{_PACKAGE}._vendor"
_SOURCE: Final = "pipeline.datasource.source"
#: The packages of this tree; nothing else is carried.
_OURS: Final = ("gateway", "pipeline")
#: What may be imported besides, as setup.cfg names it.
_NEEDED: Final = ("pyspark", "pyarrow")

_INIT: Final = f'''"""The Spark data source ``stomp``: STOMP destinations as DataFrames.

Spark finds it here by itself::

    spark.read.format("stomp").option("destination", "queue:orders").load()
"""

from {_VENDOR}.{_SOURCE} import StompDataSource as DefaultSource

__all__ = ["DefaultSource"]
__version__ = "{__version__}"
'''
_VENDOR_INIT: Final = '"""Copies from stomp-gateway; only their imports are changed."""\n'


class NotCarried(Exception):
    """A module imports what the wheel cannot have; the text says what."""


def carried(root: Path = _ROOT, first: str = _SOURCE) -> dict[str, str]:
    """The sources of a module, and of what it imports of this tree.

    By module. Their imports name :data:`_VENDOR`. Those inside of functions, and for types only, count as
    well.

    :raises NotCarried: one of them needs something else that must be installed, or imports in a
        form that cannot be given another name.
    """
    found: dict[str, str] = {}
    missing = [first]
    while missing:
        module = missing.pop()
        if module in found:
            continue
        path = _file(root, module)
        if path is None:
            raise NotCarried(f"{module} is imported, and is not in {root}")
        found[module], needs = _renamed(root, module, path.read_text(encoding="utf-8"))
        missing += needs
        # Python imports the packages around a module, too.
        if "." in module:
            missing.append(module.rpartition(".")[0])
    return found


def _file(root: Path, module: str) -> Path | None:
    path = root.joinpath(*module.split("."))
    return next(
        (each for each in (path / "__init__.py", path.with_suffix(".py")) if each.exists()), None
    )


def _renamed(root: Path, module: str, source: str) -> tuple[str, list[str]]:
    """A source with other names for our modules, and which it imports."""
    lines = source.splitlines(keepends=True)
    needs: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name in _names(node):
            top = name.partition(".")[0]
            if top in _OURS:
                if not isinstance(node, ast.ImportFrom) or node.level:
                    raise NotCarried(f"{module}:{node.lineno} expected: from {name} import ...")
                needs.append(name)
                # A name may be a module or not.
                needs += [
                    inner for each in node.names if _file(root, inner := f"{name}.{each.name}")
                ]
                line = node.lineno - 1
                lines[line] = lines[line].replace(f"from {name} ", f"from {_VENDOR}.{name} ", 1)
            elif top not in _NEEDED and top not in sys.stdlib_module_names:
                raise NotCarried(f"{module} imports {name}, expected {', '.join(_NEEDED)} only")
    return "".join(lines), needs


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that an import names."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [each.name for each in node.names]


def contents() -> dict[str, str]:
    """The texts of the wheel, by path; without its list of them."""
    files = {f"{_PACKAGE}/__init__.py": _INIT, f"{_PACKAGE}/_vendor/__init__.py": _VENDOR_INIT}
    for module, source in carried().items():
        inner = module.replace(".", "/")
        package = _ROOT.joinpath(inner).is_dir()
        files[f"{_PACKAGE}/_vendor/{inner}{'/__init__' if package else ''}.py"] = source
    return files | _metadata()


def _metadata() -> dict[str, str]:
    settings = ConfigParser()
    settings.read(_ROOT / "setup.cfg", encoding="utf-8")
    wanted = settings["options.extras_require"]["pipeline"].splitlines()
    about = settings["metadata"]
    lines = [
        "Metadata-Version: 2.4",
        "Name: pyspark-stomp",
        f"Version: {__version__}",
        "Summary: The Spark data source stomp: queues and topics of a STOMP broker as DataFrames",
        f"License-Expression: {about['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {settings['options']['python_requires']}",
        *[f"Requires-Dist: {line}" for line in wanted if line.startswith(_NEEDED)],
    ]
    folder = f"{_PACKAGE}-{__version__}.dist-info"
    return {
        f"{folder}/METADATA": "\n".join(lines) + "\n",
        f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: {_PACKAGE} ({__version__})\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/licenses/LICENSE": (_ROOT / "LICENSE").read_text(encoding="utf-8"),
    }


def build(folder: Path) -> Path:
    """Write the wheel into a folder, in place of one of the same version.

    The same sources make the same octets.

    :raises NotCarried: as :func:`carried`.
    """
    files = contents()
    record = f"{_PACKAGE}-{__version__}.dist-info/RECORD"
    listed = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[record] = "\n".join([*listed, f"{record},,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_PACKAGE}-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return path


def _digest(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
