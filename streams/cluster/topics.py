"""Creating the topics of a deployment, and telling what is wrong with those there are.

Partition counts are decided once: a run's owner is computed from the count, so no count is
changed here. Where run-keyed topics exist already under the prefix, missing ones get their
count, whatever the caller asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from confluent_kafka.admin import ClusterMetadata, NewTopic, ResourceType, TopicMetadata  # type: ignore[attr-defined]
from perdure.schemas import topics as table
from perdure.schemas.topics import Topic
from perdure.streams.cluster.admin import Admin, Connection
from perdure.streams.cluster.errors import Refused

ADVISED_COPIES = 3
CLUSTER = "(cluster)"
"""`Problem.topic` of what concerns no single topic."""

_DURABLE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


@dataclass(frozen=True, slots=True)
class Ensured:
    """What `ensure_topics` found or made; ``partitions`` is the count in force."""

    created: tuple[str, ...]
    partitions: int
    replication: int


@dataclass(frozen=True, slots=True)
class Problem:
    """``error``: runs can be lost or stand still; ``warning``: less is guaranteed than could be."""

    topic: str
    level: Literal["error", "warning"]
    text: str
    fixable: bool


def ensure_topics(
    connection: Connection,
    prefix: str,
    partitions: int,
    *,
    queues: tuple[str, ...] = table.QUEUES,
    processors: tuple[str, ...] = table.PROCESSORS,
    replication: int | None = None,
    timeout: float = 30,
) -> Ensured:
    """Creates the topics that are missing; several processes may do so at once.

    ``replication`` defaults to 3 where there are three brokers (with `min.insync.replicas` 2),
    else 1. Existing topics are left as they are: see `check_topics`.
    """
    admin = Admin(connection, timeout)
    cluster = admin.metadata()
    copies = replication or (ADVISED_COPIES if len(cluster.brokers) >= ADVISED_COPIES else 1)
    count = _count_in_force(cluster, prefix) or partitions
    missing = [
        _new_topic(topic, prefix, count, copies)
        for topic in table.all_topics(queues, processors)
        if prefix + topic.name not in cluster.topics
    ]
    created = admin.create(missing) if missing else []
    return Ensured(tuple(created), count, copies)


def _new_topic(topic: Topic, prefix: str, count: int, copies: int) -> NewTopic:
    settings = topic.config() | (_DURABLE if copies >= ADVISED_COPIES else {})
    return NewTopic(prefix + topic.name, topic.partitions or count, copies, config=settings)


def _count_in_force(cluster: ClusterMetadata, prefix: str) -> int | None:
    """The partition count of the deployment under ``prefix``, None where there is none yet."""
    counts = {
        topic.name: len(cluster.topics[prefix + topic.name].partitions)
        for topic in table.TOPICS
        if topic.partitions is None and prefix + topic.name in cluster.topics
    }
    if table.TASKS in counts:
        return counts[table.TASKS]
    return Counter(counts.values()).most_common(1)[0][0] if counts else None


def check_topics(
    connection: Connection,
    prefix: str,
    *,
    partitions: int | None = None,
    queues: tuple[str, ...] = table.QUEUES,
    processors: tuple[str, ...] = table.PROCESSORS,
    timeout: float = 30,
) -> list[Problem]:
    """Every departure from the contract's table, errors first; an empty list is a sound cluster.

    Topics of further queues and processors under the prefix are checked too.
    """
    admin = Admin(connection, timeout)
    cluster = admin.metadata()
    expected = _expected(cluster, prefix, queues, processors)
    present = [topic for topic in expected if prefix + topic.name in cluster.topics]
    settings = admin.configs(ResourceType.TOPIC, [prefix + topic.name for topic in present])
    count = partitions or _count_in_force(cluster, prefix)
    problems: list[Problem] = []
    for topic in expected:
        name = prefix + topic.name
        if name not in cluster.topics:
            problems.append(_missing(name))
            continue
        found = cluster.topics[name]
        if topic.partitions is None and count is not None and len(found.partitions) != count:
            problems.append(_miscounted(prefix, name, len(found.partitions), count, partitions))
        problems += _misconfigured(name, topic.config(), settings[name])
        problems += _endangered(name, found, settings[name], len(cluster.brokers))
    problems += _about_cluster(admin, cluster)
    return sorted(problems, key=lambda problem: problem.level != "error")


def fix_topics(
    connection: Connection,
    prefix: str,
    partitions: int,
    *,
    queues: tuple[str, ...] = table.QUEUES,
    processors: tuple[str, ...] = table.PROCESSORS,
    timeout: float = 30,
) -> list[Problem]:
    """Creates missing topics and corrects settings; returns what is still wrong, and why."""
    ensure_topics(
        connection, prefix, partitions, queues=queues, processors=processors, timeout=timeout
    )
    admin = Admin(connection, timeout)
    cluster = admin.metadata()
    expected = _expected(cluster, prefix, queues, processors)
    settings = admin.configs(ResourceType.TOPIC, [prefix + topic.name for topic in expected])
    changes: dict[str, dict[str, str]] = {}
    for topic in expected:
        name = prefix + topic.name
        wanted = _departures(topic.config(), settings[name])
        if _copies(cluster.topics[name]) >= ADVISED_COPIES:
            wanted |= _departures(_DURABLE, settings[name])
        if wanted:
            changes[name] = wanted
    admin.set_configs(ResourceType.TOPIC, changes)
    return check_topics(connection, prefix, queues=queues, processors=processors, timeout=timeout)


def _expected(
    cluster: ClusterMetadata, prefix: str, queues: Iterable[str], processors: Iterable[str]
) -> tuple[Topic, ...]:
    """The table's topics, and those of queues and processors that only this cluster knows."""
    names = [name.removeprefix(prefix) for name in cluster.topics if name.startswith(prefix)]
    more_queues = _named(names, r"agent\.commands\.(.+)")
    more_processors = _named(names, r"agent\.(.+)\.changelog")
    return table.all_topics(
        tuple(dict.fromkeys((*queues, *more_queues))),
        tuple(dict.fromkeys((*processors, *more_processors))),
    )


def _named(names: Iterable[str], pattern: str) -> Iterator[str]:
    return (match[1] for name in sorted(names) if (match := re.fullmatch(pattern, name)))


# -- what a setting must be ---------------------------------------------------------------

_Fits = Callable[[str, str], bool]


def _equal(found: str, wanted: str) -> bool:
    return found == wanted


def _at_least(found: str, wanted: str) -> bool:
    return int(found) >= int(wanted)


def _as_long(found: str, wanted: str) -> bool:
    """Retention times: -1 is for ever."""
    return found == "-1" or (wanted != "-1" and int(found) >= int(wanted))


@dataclass(frozen=True, slots=True)
class _Rule:
    fits: _Fits
    level: Literal["error", "warning"]
    why: str


_RULES: Mapping[str, _Rule] = {
    "cleanup.policy": _Rule(_equal, "error", "records would be deleted that are needed, or kept"),
    "max.message.bytes": _Rule(_at_least, "error", "larger records would be refused"),
    "message.timestamp.type": _Rule(_equal, "error", "a sender could choose when it decided"),
    "delete.retention.ms": _Rule(
        _at_least, "error", "a store that was away for longer would keep what was deleted"
    ),
    "retention.ms": _Rule(_as_long, "warning", "records are deleted sooner than the contract says"),
    "min.insync.replicas": _Rule(
        _at_least, "warning", "with fewer copies in step a write can be lost with one disk"
    ),
    "unclean.leader.election.enable": _Rule(
        _equal, "warning", "a broker that lags may lead, and what it lacks is lost"
    ),
}
"""Settings not named here are tuning: ours are given at creation and never insisted on."""
_WORD = {"error": "needed", "warning": "advised"}


def _departures(wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in wanted.items()
        if name in _RULES and not _RULES[name].fits(found.get(name, ""), value)
    }


def _misconfigured(
    name: str, wanted: Mapping[str, str], found: Mapping[str, str]
) -> Iterator[Problem]:
    for setting, value in _departures(wanted, found).items():
        rule = _RULES[setting]
        yield Problem(
            name,
            rule.level,
            f"{name} has {setting}={found.get(setting)} where {value} is {_WORD[rule.level]}: "
            f"{rule.why}. "
            "Run `perdure topics check --fix`",
            fixable=True,
        )


def _missing(name: str) -> Problem:
    return Problem(name, "error", f"{name} is missing: run `perdure topics create`", fixable=True)


def _miscounted(prefix: str, name: str, found: int, count: int, asked: int | None) -> Problem:
    tasks = prefix + table.TASKS
    if name == tasks or asked is not None:
        compared = f"{name} has {found} partitions and {count} are asked for"
    else:
        compared = f"{tasks} has {count} partitions and {name} {found}; they must be equal"
    return Problem(
        name,
        "error",
        f"{compared}. The count can't be changed, since it says which process owns a run: start a "
        f"new topic_prefix and let this one run dry, or, if nothing is in it yet, delete {name} "
        "and run `perdure topics create`",
        fixable=False,
    )


# -- what can be lost ---------------------------------------------------------------------


def _copies(topic: TopicMetadata) -> int:
    return min((len(part.replicas) for part in topic.partitions.values()), default=0)


def _endangered(
    name: str, topic: TopicMetadata, found: Mapping[str, str], brokers: int
) -> Iterator[Problem]:
    copies = _copies(topic)
    if copies >= ADVISED_COPIES:
        yield from _misconfigured(name, _DURABLE, found)
        if int(found.get("min.insync.replicas", "1")) >= copies:
            yield Problem(
                name,
                "warning",
                f"{name} has {copies} copies and min.insync.replicas={copies}: work stops as soon "
                "as one broker does. Set it to 2",
                fixable=False,
            )
    elif brokers >= ADVISED_COPIES:
        yield Problem(
            name,
            "warning",
            f"{name} has {copies} {'copy' if copies == 1 else 'copies'} on a cluster of {brokers} "
            f"brokers: give it {ADVISED_COPIES} with kafka-reassign-partitions.sh, or start a new "
            "topic_prefix",
            fixable=False,
        )


def _about_cluster(admin: Admin, cluster: ClusterMetadata) -> Iterator[Problem]:
    brokers = len(cluster.brokers)
    if brokers < ADVISED_COPIES:
        yield Problem(
            CLUSTER,
            "warning",
            f"the cluster has {brokers} {'broker' if brokers == 1 else 'brokers'}: what is written "
            f"stands on one disk. With {ADVISED_COPIES} brokers nothing is lost while one stands",
            fixable=False,
        )
    try:
        (settings,) = admin.configs(ResourceType.BROKER, [str(min(cluster.brokers))]).values()
    except Refused:  # not everybody may read a broker's settings, and nothing depends on it
        return
    if settings.get("auto.create.topics.enable") == "true":
        yield Problem(
            CLUSTER,
            "warning",
            "the brokers create topics by themselves: a misspelt topic takes records that nobody "
            "reads. Set auto.create.topics.enable=false on the brokers",
            fixable=False,
        )
