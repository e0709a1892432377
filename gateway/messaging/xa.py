"""The XA codes, and the form of XA errors, for all who take part in XA.

Owns the numbers of the X/Open CAE Specification "Distributed Transaction Processing: The XA
Specification" (section 4.2 and appendix A). The embedded broker answers with them, the bridge's
coordinator acts on them: what follows from a code is decided there.
"""

from __future__ import annotations

from typing import Final

from gateway.messaging.errors import MessagingError, XAError
from gateway.messaging.provider import Xid

XA_OK: Final = 0
XA_RDONLY: Final = 3
XA_RETRY: Final = 4
XA_HEURMIX: Final = 5
XA_HEURRB: Final = 6
XA_HEURCOM: Final = 7
XA_HEURHAZ: Final = 8

XA_RBBASE: Final = 100
XA_RBROLLBACK: Final = 100
XA_RBTIMEOUT: Final = 106
XA_RBEND: Final = 107

XAER_RMERR: Final = -3
XAER_NOTA: Final = -4
XAER_INVAL: Final = -5
XAER_PROTO: Final = -6
XAER_RMFAIL: Final = -7
XAER_DUPID: Final = -8


def is_rolled_back(code: int) -> bool:
    """Whether the code says that the branch was rolled back (XA_RB*)."""
    return XA_RBBASE <= code <= XA_RBEND


def code_of(error: MessagingError) -> int:
    """Return the code of an XAError, and XAER_RMFAIL for any other error.

    XAER_RMFAIL (the resource manager cannot be reached) promises nothing, which is right for errors
    that say nothing about the branch.
    """
    return error.code if isinstance(error, XAError) else XAER_RMFAIL


def xid_text(xid: Xid) -> str:
    """Format a branch for logs and operators.

    Format id, global id and qualifier, in hexadecimal.
    """
    return f"{xid.format_id:x}.{xid.gtrid.hex()}.{xid.bqual.hex()}"


def xa_error(code: int, xid: Xid, reason: str) -> XAError:
    """Make the error of a code, with a text that names the branch."""
    return XAError(code, f"branch {xid_text(xid)} {reason}")
