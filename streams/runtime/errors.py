"""What can go wrong in the runtime, sorted by what to do next.

::

    RuntimeFault                 the process ends with ``exit_code``; its supervisor starts a new one
     ├── KafkaUnreachable    (3) nothing answered at the start
     ├── IdentityTaken       (5) somebody else has my identity
     │    ├── ProducerFenced     my transactional id was taken, or the producer is past repair
     │    └── DirectoryLocked    my data directory is in use
     ├── TopicMismatch       (1) topics missing, or with partition counts that do not fit
     ├── OutcomeUnknown      (1) a commit was never answered; only a restore can tell
     └── StoreFailed         (1) the local store can't be read or written (a full disk)
    Aborted                      this cycle is void: drop the overlay, take the batch again
     ├── GroupFenced             ... because the group no longer knows us under this epoch
     └── DoesNotFit              ... because a record is too large for its topic
    Unanswered                   a question to Kafka failed for now; ask again
    StoreCorrupt                 wipe and restore
    StoreBusy                    the store is still held; ask again for a bounded time
    TooLarge                     (a processor's mistake) what it put or sent does not fit a record
    Undeliverable                (the same) Kafka refuses what this input leads to
"""

from __future__ import annotations


class RuntimeFault(Exception):
    """The process can't go on. The message says what to do, for a person."""

    exit_code = 1


class KafkaUnreachable(RuntimeFault):
    exit_code = 3


class IdentityTaken(RuntimeFault):
    exit_code = 5


class ProducerFenced(IdentityTaken):
    """Never answered by a new producer in place: two processes would fence each other for ever."""


class DirectoryLocked(IdentityTaken):
    pass


class TopicMismatch(RuntimeFault):
    pass


class OutcomeUnknown(RuntimeFault):
    """The commit may or may not have happened; the changelog will tell the next process."""


class StoreFailed(RuntimeFault):
    pass


class Aborted(Exception):
    """The transaction did not and will not happen; its inputs are taken again."""


class GroupFenced(Aborted):
    """The broker refused our offsets: unknown member or stale epoch. The consumer rejoins."""


class DoesNotFit(Aborted):
    """Whatever Kafka is at: the same record will be refused again."""


class Unanswered(Exception):
    pass


class StoreCorrupt(Exception):
    pass


class StoreBusy(Exception):
    pass


NOT_THE_INPUTS = (RuntimeFault, StoreCorrupt, MemoryError)
"""What comes out of a processor's calls and is not of the input: nobody sets an input aside for it."""


class TooLarge(ValueError):
    """Raised inside the savepoint, so the input that caused it is set aside, not the partition."""


class Undeliverable(Exception):
    """Handed to `Processor.failed` of an input whose transaction is refused while others are taken."""
