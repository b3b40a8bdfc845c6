"""Perdure: durable agents on Kafka. These names are the whole public Python (contract section 7).

Each is imported when it is first asked for: the pytest plugin lies in this package and is loaded
in every test run of an environment that has it, where a Kafka client has no business.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(
        import_module("perdure.client" if name == "Client" else "perdure.connectors"), name
    )
