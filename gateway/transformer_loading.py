"""Classes that the operator names in a setting, and their folder.

Only names from the administrator's own files come here, never one from the wire.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from gateway.messaging.transformer import MessageTransformer


class ExtensionError(Exception):
    """The class cannot be had.

    The message names it, the setting and where it was looked for.
    """


def load_transformer(name: str, setting: str, folder: Path) -> MessageTransformer:
    """An instance of a message transformer's class.

    :param name: ``package.module:Class`` or ``package.module.Class``, in ``folder`` or installed.
    :param setting: the setting that names it, for errors.
    :param folder: ``<varhome>/lib/ext``; it is on the path from now on.
    :raises ExtensionError:
    """
    path = str(folder)
    if path not in sys.path:
        sys.path.append(path)
    module_name, separator, class_name = name.partition(":")
    if not separator:
        module_name, separator, class_name = name.rpartition(".")
    if not separator or not module_name or not class_name:
        raise ExtensionError(f"{setting}={name}: expected package.module:Class")
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, class_name)
    except ModuleNotFoundError as error:
        raise ExtensionError(
            f"{setting}={name}: there is no module {error.name}, neither installed nor in {path}"
        ) from error
    except AttributeError as error:
        raise ExtensionError(
            f"{setting}={name}: {module_name} has no class {class_name}"
        ) from error
    except Exception as error:
        # The operator's own code runs here, and anything may come out of it.
        raise ExtensionError(
            f"{setting}={name}: {module_name} failed when it was imported: {error!r}"
        ) from error
    if not isinstance(found, type) or not issubclass(found, MessageTransformer):
        raise ExtensionError(
            f"{setting}={name}: {class_name} is no subclass of gateway.messaging.transformer.MessageTransformer"
        )
    try:
        return found()
    except Exception as error:
        raise ExtensionError(
            f"{setting}={name}: {class_name} could not be made: {error!r}"
        ) from error
