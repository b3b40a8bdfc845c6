"""What can go wrong around a cluster, each with what to do about it.

    ClusterError (exit 3: Kafka can't be reached)
    ├── ExtraMissing       the Java runtime and the resolver are not installed
    ├── DownloadFailed     the broker's jars could not be fetched
    ├── NoFreePort         nothing to listen on
    ├── DataDirUnusable    not writable, or no directory
    ├── DiskFull
    ├── ForeignData        written by a newer Kafka, or by another cluster
    ├── BrokerDied         with the end of its log
    ├── NotReady           alive, but it does not answer
    ├── Unreachable        no broker answers at the given address
    ├── Refused            a broker answered, and said no
    └── InUse (exit 5)     another process holds the data directory

The command line prints ``str(error)`` and leaves with ``error.exit_code``.
"""

from __future__ import annotations


class ClusterError(Exception):
    """``str()`` is one message for a person: what happened, then what to do."""

    exit_code = 3


class ExtraMissing(ClusterError):
    pass


class DownloadFailed(ClusterError):
    pass


class NoFreePort(ClusterError):
    pass


class DataDirUnusable(ClusterError):
    pass


class DiskFull(ClusterError):
    pass


class ForeignData(ClusterError):
    pass


class BrokerDied(ClusterError):
    pass


class NotReady(ClusterError):
    pass


class Unreachable(ClusterError):
    pass


class Refused(ClusterError):
    exit_code = 1


class InUse(ClusterError):
    """``holder`` is the process id of the one that holds it, where it is known."""

    exit_code = 5

    def __init__(self, message: str, holder: int | None = None) -> None:
        super().__init__(message)
        self.holder = holder
