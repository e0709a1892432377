"""The codes of the X/Open CAE Specification "Distributed Transaction Processing: The XA
Specification", section 3.2, that a coordinator acts on.

Owns their names. What follows from one is decided in :mod:`bridge.xa.step`.
"""

from __future__ import annotations

from typing import Final

from gateway.messaging.errors import MessagingError, XAError

OK: Final = 0
XA_RDONLY: Final = 3
XA_RETRY: Final = 4
XA_HEURMIX: Final = 5
XA_HEURRB: Final = 6
XA_HEURCOM: Final = 7
XA_HEURHAZ: Final = 8
XA_RBBASE: Final = 100
XA_RBEND: Final = 107
XAER_RMERR: Final = -3
XAER_NOTA: Final = -4
XAER_INVAL: Final = -5
XAER_PROTO: Final = -6
XAER_RMFAIL: Final = -7


def is_rolled_back(code: int) -> bool:
    """Whether it is one of XA_RB*: the resource manager has rolled the branch back."""
    return XA_RBBASE <= code <= XA_RBEND


def code_of(error: MessagingError) -> int:
    """The code of an XAError. All else is taken for a resource manager that cannot be reached,
    which promises nothing.
    """
    return error.code if isinstance(error, XAError) else XAER_RMFAIL
