"""Who needs which rights on a cluster with access control, from the table of topics.

A deployment gives each role a user of its own. Only the engine may write to what states a
fact (events, outcomes, verdicts, open questions, commands); people and connectors may ask.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from perdure.schemas import topics as table

PRINCIPALS = {
    "engine": "User:perdure-engine",
    "worker": "User:perdure-worker",
    "views": "User:perdure-views",
    "submitter": "User:perdure-submitter",
    "approver": "User:perdure-approver",
    "operator": "User:perdure-operator",
}

_PUBLIC = (table.EVENTS, table.VERDICTS, table.OUTCOMES, table.PENDING)


@dataclass(frozen=True, slots=True)
class Grant:
    """``names`` of one ``resource`` (``topic``, ``group``, ``transactional-id``, ``cluster``)."""

    role: str
    operations: tuple[str, ...]
    resource: str
    names: tuple[str, ...]
    prefixed: bool = False


def grants(prefix: str, queues: Iterable[str] = table.QUEUES) -> list[Grant]:
    """Everything that each role needs, and nothing more."""
    queues = tuple(queues)
    return [
        *_processor("engine", prefix, (table.ENGINE,)),
        *_topics("engine", "Read", prefix, _ENGINE_READS),
        *_topics("engine", "Write", prefix, _ENGINE_WRITES),
        *_topics("engine", "Write", prefix, map(table.commands, queues)),
        Grant("engine", ("Create", "AlterConfigs"), "topic", (prefix + "agent.",), prefixed=True),
        *_processor("worker", prefix, map(table.worker, queues)),
        *_topics("worker", "Read", prefix, (*map(table.commands, queues), *_WORKER_READS)),
        *_topics("worker", "Write", prefix, _WORKER_WRITES),
        Grant("worker", ("Create",), "topic", (prefix + "agent.commands.",), prefixed=True),
        *_topics("views", "Read", prefix, (*_PUBLIC, table.CATALOG, table.BREAKERS)),
        *_topics("views", "Write", prefix, (table.TASKS, table.APPROVALS, table.CONTROL)),
        *_topics("views", "Read", prefix, (table.DEAD_LETTERS, table.changelog(table.ENGINE))),
        # What waits on the inputs of the others, and how long: the page's health.
        *_topics("views", "Read", prefix, _INPUTS),
        Grant("views", ("Read",), "topic", (prefix + table.commands(""),), prefixed=True),
        *_topics("views", "Write", prefix, map(table.changelog, table.VIEW_TABLES)),
        *_topics("views", "Read", prefix, map(table.changelog, table.VIEW_TABLES)),
        Grant("views", ("Create", "Delete"), "topic", (prefix + "agent.views.",), prefixed=True),
        Grant("views", ("Describe",), "topic", (prefix + "agent.",), prefixed=True),
        Grant("views", ("Read", "Delete"), "group", (table.group_id(prefix, table.VIEWS),)),
        Grant("views", ("Describe",), "group", (prefix + "perdure.",), prefixed=True),
        *_topics("submitter", "Write", prefix, (table.TASKS,)),
        *_topics("submitter", "Read", prefix, (table.EVENTS, table.OUTCOMES)),
        *_topics("approver", "Write", prefix, (table.APPROVALS, table.CONTROL)),
        *_topics("approver", "Read", prefix, _PUBLIC),
        *_topics("operator", "Read", prefix, (table.DEAD_LETTERS, table.BREAKERS, *_PUBLIC)),
        *_topics("operator", "Write", prefix, (table.CATALOG, table.CONTROL, table.BREAKERS)),
        Grant("operator", _OPERATOR, "topic", (prefix + "agent.",), prefixed=True),
        Grant("operator", ("Describe", "DescribeConfigs"), "cluster", ("kafka-cluster",)),
    ]


_INPUTS = (table.TASKS, table.RESULTS, table.APPROVALS, table.CONTROL, table.FORWARDED)
_ENGINE_READS = (*_INPUTS, table.CATALOG)
_ENGINE_WRITES = (
    table.EVENTS,
    table.VERDICTS,
    table.OUTCOMES,
    table.PENDING,
    table.FORWARDED,
    table.DEAD_LETTERS,
)
_WORKER_READS = (table.BREAKERS, table.CATALOG)
_WORKER_WRITES = (table.RESULTS, table.BREAKERS, table.CATALOG, table.DEAD_LETTERS)
_OPERATOR = ("Create", "Describe", "DescribeConfigs", "AlterConfigs")


def _processor(role: str, prefix: str, processors: Iterable[str]) -> Iterator[Grant]:
    """What the runtime needs for each processor: its group, its transactions, its changelog."""
    for name in processors:
        changelog = (prefix + table.changelog(name),)
        yield Grant(role, ("Read", "Write", "Create", "DescribeConfigs"), "topic", changelog)
        rights = ("Read", "Describe", "DescribeConfigs", "AlterConfigs")
        yield Grant(role, rights, "group", (table.group_id(prefix, name),))
        # A prefix, not one id: a new owner aborts what a dead one left open.
        ids = (table.transactional_id(prefix, name, ""),)
        yield Grant(role, ("Write", "Describe"), "transactional-id", ids, prefixed=True)


def _topics(role: str, operation: str, prefix: str, names: Iterable[str]) -> Iterator[Grant]:
    yield Grant(role, (operation, "Describe"), "topic", tuple(prefix + name for name in names))


def commands(
    bootstrap: str, wanted: Iterable[Grant], principals: Mapping[str, str] = PRINCIPALS
) -> list[str]:
    """As commands of Kafka's own tool, one for each grant."""
    return [_command(bootstrap, grant, principals[grant.role]) for grant in wanted]


def _command(bootstrap: str, grant: Grant, principal: str) -> str:
    words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, "--add"]
    words += ["--allow-principal", principal]
    for operation in grant.operations:
        words += ["--operation", operation]
    if grant.resource == "cluster":
        return shlex.join([*words, "--cluster"])
    if grant.prefixed:
        words += ["--resource-pattern-type", "prefixed"]
    for name in grant.names:
        words += [f"--{grant.resource}", name]
    return shlex.join(words)
