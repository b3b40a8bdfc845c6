"""The bodies of ``perdure topics create|check|acls``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Final

from perdure.schemas import topics as table
from perdure.settings import Settings
from perdure.streams.cluster import acls as rights
from perdure.streams.cluster.losses import accept_loss
from perdure.streams.cluster.topics import check_topics, ensure_topics, fix_topics
from perdure.streams.runtime.kafka import ConfluentKafka
from perdure.streams.runtime.offsets import StoredOffsets, decode_stored
from perdure.streams.runtime.store import OFFSETS_KEY
from perdure.topics_reader import NoTopic, Scanner

from .console import FAILED, leave, line, say
from .terminal import emit


def create(made: Settings, replication: int | None) -> None:
    """Create what is missing."""
    done = ensure_topics(
        made.client_conf(), made.topic_prefix, made.partitions, replication=replication
    )
    for name in done.created:
        print(name)
    say(
        f"{len(done.created)} topics created; {done.partitions} partitions"
        if done.created
        else f"nothing to create; {done.partitions} partitions"
    )


def check(made: Settings, fix: bool, as_json: bool, losses: Sequence[str] = ()) -> None:
    """Say what is wrong; with ``fix`` what is still wrong. ``losses`` are accepted first."""
    conf, prefix = made.client_conf(), made.topic_prefix
    for name in losses:
        for each in accept_loss(conf, prefix, name, partial(_made_anew, made)):
            say(
                f"accepted: {each.group} goes on at {each.topic}-{each.partition}, offset {each.offset}"
            )
    problems = fix_topics(conf, prefix, made.partitions) if fix else check_topics(conf, prefix)
    errors = sum(problem.level == "error" for problem in problems)
    if as_json:
        line({"ok": not errors, "problems": [asdict(problem) for problem in problems]})
    for problem in problems:
        if not as_json:
            emit(
                f"{problem.level}: {problem.text}", "red" if problem.level == "error" else "yellow"
            )
    if errors:
        leave(FAILED, f"{errors} {'error' if errors == 1 else 'errors'} in the topics")
    if not as_json:
        say("the topics are as they should be" if not problems else "no errors")


_TAIL: Final = 2_000
"""Records of a changelog's end: every transaction ends with the entry that is looked for."""


def _made_anew(made: Settings, processor: str, topic: str, partition: int) -> bool:
    """Whether an input is another topic than the one that was read; also where nothing tells."""
    changelog = table.changelog(processor)
    admin = ConfluentKafka(made.runtime()).admin()
    now = admin.topic_ids([topic]).result()[topic]
    scanner = Scanner(made.client_conf(), made.topic_prefix)
    try:
        stored = last_offsets(scanner, changelog, partition)
    except NoTopic:
        return True
    return stored is None or stored.topic_ids.get(topic, now) != now


def last_offsets(scanner: Scanner, changelog: str, partition: int) -> StoredOffsets | None:
    """What a processor last noted of its inputs. Raises `NoTopic`, `Unreachable`."""
    ends = scanner.ends([changelog])
    starts = {at: max(end - _TAIL, 0) if at[1] == partition else end for at, end in ends.items()}
    found = None
    for raw in scanner.scan([changelog], starts=starts):
        if raw is not None and raw.partition == partition and raw.key == OFFSETS_KEY and raw.value:
            found = decode_stored(raw.value)
    return found


def acls(made: Settings, queues: list[str], as_json: bool) -> None:
    """Print the rights each role needs."""
    wanted = rights.grants(made.topic_prefix, tuple(dict.fromkeys((*table.QUEUES, *queues))))
    if as_json:
        for grant in wanted:
            line(asdict(grant))
        return
    servers = made.bootstrap_servers or "$BOOTSTRAP_SERVERS"
    for command in rights.commands(servers, wanted):
        print(command)
