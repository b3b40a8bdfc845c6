"""What the simulated broker says in its own name; the ports' errors are the runtime's."""

from __future__ import annotations


class ProcessGone(BaseException):
    """A killed process called Kafka: nothing of it may run any more. Not an `Exception`, so that
    no handler of the dead process's own code takes it for an answer."""


class BrokerDown(Exception):
    """A client outside the runtime asked a broker that is down."""


class Refused(Exception):
    """The broker does not take a record: no such topic or partition, too large, no key."""


class TooLargeForTopic(Refused):
    """Whatever the broker is at, it will not take this one."""
