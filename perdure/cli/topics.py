"""The bodies of ``perdure topics create|check|acls``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from perdure.schemas import topics as table
from perdure.settings import Settings
from perdure.streams.cluster import acls as rights
from perdure.streams.cluster.losses import accept_loss
from perdure.streams.cluster.topics import check_topics, ensure_topics, fix_topics

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
        for each in accept_loss(conf, prefix, name):
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
