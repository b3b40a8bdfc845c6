"""Perdure: durable agents on Kafka. These names are the whole public Python (contract section 7)."""

from perdure.client import Client
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
    "Client",
    "Found",
    "InvalidArguments",
    "OutcomeUnknown",
    "PermissionDenied",
    "ToolContext",
    "TransientError",
    "tool",
]
