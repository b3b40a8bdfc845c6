"""Perdure: durable agents on Kafka. These names are the whole public Python (contract section 7)."""

from perdure.connectors import (
    ABSENT,
    UNCLEAR,
    BusinessError,
    Found,
    InvalidArguments,
    OutcomeUnknown,
    PermissionDenied,
    ToolContext,
    TransientError,
    tool,
)

__all__ = [
    "ABSENT",
    "UNCLEAR",
    "BusinessError",
    "Found",
    "InvalidArguments",
    "OutcomeUnknown",
    "PermissionDenied",
    "ToolContext",
    "TransientError",
    "tool",
]
