"""Find a message transformer's class among jars and folders.

Owns where a class in Java is looked for, before any Java process runs, so that a link whose class
is missing can be refused at once. What is in it only Java can tell.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bridge.providers.jms.failures import ClientMissing
from bridge.providers.jms.java_command import expanded


class TransformerClass(NamedTuple):
    """A message transformer's class in Java.

    :param name: as Java has it, such as ``com.acme.Plain``.
    :param home: the jar or folder that has it.
    :param jars: those of the operator's folder, which may have more of its classes.
    :param key: whose it is; there is one object for each key.
    """

    name: str
    home: str
    jars: tuple[str, ...]
    key: str


class ClassMissing(Exception):
    """No place has the class.

    The text has the places.
    """


def find(name: str, class_path: str, folder: Path | None, key: str) -> TransformerClass:
    """Find a class.

    :param name: as Java has it.
    :param class_path: of the process that is to run it, which is searched first.
    :param folder: the operator's, whose jars are searched next; None for none.
    :param key: as in :class:`TransformerClass`.
    :raises ClassMissing:
    """
    try:
        places = list(expanded(class_path))
    except ClientMissing as error:
        raise ClassMissing(str(error)) from error
    jars = tuple(sorted(map(str, _jars(folder))))
    entry = f"{name.replace('.', '/')}.class"
    for place in (*places, *jars):
        if _has(place, entry):
            return TransformerClass(name, place, jars, key)
    asked = [class_path.strip() or "the empty class path"]
    if folder is not None:
        asked.append(f"{folder}/*.jar")
    raise ClassMissing(f"there is no class {name} in {' nor in '.join(asked)}")


def _jars(folder: Path | None) -> Iterator[Path]:
    if folder is not None and folder.is_dir():
        for path in folder.iterdir():
            if path.suffix.lower() == ".jar":
                yield path.absolute()


def _has(place: str, entry: str) -> bool:
    if os.path.isdir(place):
        return Path(place, entry).is_file()
    try:
        with zipfile.ZipFile(place) as jar:
            return entry in jar.NameToInfo
    except (OSError, zipfile.BadZipFile):
        # Java passes over what is no jar, too.
        return False
