"""Contexts: brokers by a name of their own, with how to reach them.

Owns the file that they are in, and which of them counts. It is
``$XDG_CONFIG_HOME/stomp-gateway/contexts.toml``, by default below ``~/.config``, for its owner alone.
It names passfiles and has no password.

``-context NAME`` counts before the environment's ``IMQ_CONTEXT``, and that before what ``context
use`` has chosen. Neither of the last two counts where ``-b`` names a broker, so that the password
for one broker is not sent to another.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.instance.layout import folder_locked, make_directory, replace

VARIABLE: Final = "IMQ_CONTEXT"
#: Stands for the use of no context.
NONE: Final = "none"
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class ContextRefused(Exception):
    """A context cannot be had or made; ``str`` says why."""


class ContextsClosed(ContextRefused):
    """This user may not read the file."""


@dataclass(frozen=True)
class Context:
    """A broker, and how to reach it.

    :param broker: as ``-b`` has it; "" for the default, and so on.
    """

    broker: str = ""
    user: str = ""
    passfile: str = ""
    cacert: str = ""
    secure: bool = False


@dataclass
class Contexts:
    """The contexts of a user.

    :param current: the one that ``context use`` has chosen; "" for none.
    """

    current: str = ""
    by_name: dict[str, Context] = field(default_factory=dict)

    def named(self, name: str, source: str) -> Context:
        """Return one. :raises ContextRefused: there is no such context."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(self.by_name) or "none: there is no context yet"
            raise ContextRefused(f"{source}: there is no context {name}; expected one of {known}")
        return found

    def add(self, name: str, context: Context) -> None:
        """Have one more. :raises ContextRefused: its name is not free."""
        if _NAME.fullmatch(name) is None or name == NONE:
            raise ContextRefused(
                f"{name!r} can be no context's name: expected letters, digits, '_', '-' and '.', and not the word {NONE}"
            )
        if name in self.by_name:
            raise ContextRefused(f"there is a context {name} already; remove it first")
        self.by_name[name] = context


def path(environment: Mapping[str, str]) -> Path:
    """Return the place of the file."""
    given = environment.get("XDG_CONFIG_HOME", "")
    # As the XDG specification says, a relative one is ignored.
    folder = Path(given if os.path.isabs(given) else os.path.expanduser("~/.config"))
    return folder / "stomp-gateway" / "contexts.toml"


def read(file: Path) -> Contexts:
    """Read the file; without one there are no contexts.

    :raises ContextRefused: it cannot be used.
    """
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & _WRITABLE:
                raise ContextRefused(
                    f"{file}: others can write it, and have passwords sent elsewhere; chmod 600 {file}"
                )
            found = tomllib.load(opened)
        by_name = {name: Context(**values) for name, values in found.get("context", {}).items()}
        for name, each in by_name.items():
            for key, value in asdict(each).items():
                if type(value) is not type(getattr(Context, key)):
                    raise ValueError(f"context.{name}.{key}: {value!r}")
        return Contexts(str(found.get("current", "")), by_name)
    except FileNotFoundError:
        return Contexts()
    except PermissionError as error:
        raise ContextsClosed(f"{file}: {error.strerror}") from None
    except OSError as error:
        raise ContextRefused(f"{file}: {error.strerror or error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ContextRefused(f"{file}: expected contexts: {error}") from None


@contextmanager
def edited(file: Path) -> Iterator[Contexts]:
    """Give the contexts to be changed, and write them at the end.

    What the block raises leaves them as they were.

    :raises ContextRefused: as :func:`read`, or it cannot be written.
    """
    # The commands that use contexts need not wait for it.
    import tomlkit

    if not file.is_absolute():
        raise ContextRefused("your home folder is not known: set XDG_CONFIG_HOME")
    try:
        make_directory(file.parent)
        with folder_locked(file.parent):
            contexts = read(file)
            yield contexts
            found: dict[str, Any] = {"current": contexts.current} if contexts.current else {}
            found["context"] = {
                name: {key: value for key, value in asdict(context).items() if value}
                for name, context in sorted(contexts.by_name.items())
            }
            replace(file, tomlkit.dumps(found).encode())
    except OSError as error:
        raise ContextRefused(f"{error.filename}: {error.strerror or error}") from None


def applied(parsed: Namespace, environment: Mapping[str, str]) -> Namespace:
    """Complete a command line's options by those of its context.

    :raises ContextRefused: there is no such context, or the file cannot be used.
    """
    if parsed.context:
        name, source = parsed.context, "-context"
    elif parsed.broker is not None:
        return parsed
    else:
        name, source = environment.get(VARIABLE, ""), VARIABLE
    if name == NONE:
        return parsed
    file = path(environment)
    try:
        contexts = read(file)
    except ContextsClosed:
        if name:
            raise
        # Another user's, as below sudo.
        return parsed
    if not name:
        name, source = contexts.current, str(file)
    if name in ("", NONE):
        return parsed
    context = contexts.named(name, source)
    given = {key: value for key, value in vars(parsed).items() if value not in (None, False)}
    below = {key: value for key, value in asdict(context).items() if value}
    return Namespace(**{**vars(parsed), **below, **given})
