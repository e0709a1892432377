"""The request loop of the drivers that are written in Python; knows nothing of any client."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def serve(driver: object) -> None:
    """Answer requests until standard input ends.

    :param driver: has a method for each verb, which takes the request's other values by name.
    """
    for line in sys.stdin:
        request = json.loads(line)
        verb = request.pop("verb")
        answer: Mapping[str, Any]
        try:
            answer = {"ok": getattr(driver, verb)(**request)}
        except Exception as error:  # noqa: BLE001  whatever the client raises is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
