"""The codes of the X/Open CAE Specification, section 4.2 and appendix A, that this resource manager
answers with.

Owns the numbers and the form of the errors. Decides nothing.
"""

from __future__ import annotations

from typing import Final

from gateway.messaging.errors import XAError
from gateway.messaging.provider import Xid

XA_HEURRB: Final = 6
XA_HEURCOM: Final = 7

XA_RBROLLBACK: Final = 100
XA_RBTIMEOUT: Final = 106

XAER_RMERR: Final = -3
XAER_NOTA: Final = -4
XAER_INVAL: Final = -5
XAER_PROTO: Final = -6
XAER_RMFAIL: Final = -7
XAER_DUPID: Final = -8


def xid_text(xid: Xid) -> str:
    """A branch as logs and operators have it: format id, global id and branch qualifier, in
    hexadecimal.
    """
    return f"{xid.format_id:x}.{xid.gtrid.hex()}.{xid.bqual.hex()}"


def xa_error(code: int, xid: Xid, reason: str) -> XAError:
    """The error that says of which branch it speaks."""
    return XAError(code, f"branch {xid_text(xid)} {reason}")
