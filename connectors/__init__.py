"""Connectors: what the outside is, in Python (contract section 7)."""

from .errors import (
    BusinessError,
    InvalidArguments,
    OutcomeUnknown,
    PermissionDenied,
    ToolError,
    TransientError,
)
from .tool import ABSENT, UNCLEAR, Found, Tool, ToolContext, tool

__all__ = [
    "ABSENT",
    "UNCLEAR",
    "BusinessError",
    "Found",
    "InvalidArguments",
    "OutcomeUnknown",
    "PermissionDenied",
    "Tool",
    "ToolContext",
    "ToolError",
    "TransientError",
    "tool",
]
