"""The rights follow the contract's columns 'written by' and 'read by'."""

from __future__ import annotations

from perdure.schemas import topics as table
from perdure.streams.cluster.acls import PRINCIPALS, commands, grants


def roles(operation: str, topic: str) -> set[str]:
    return {
        grant.role
        for grant in grants("p.", ("tools",))
        if grant.resource == "topic"
        and not grant.prefixed
        and operation in grant.operations
        and "p." + topic in grant.names
    }


def test_only_the_engine_states_facts() -> None:
    for topic in (table.EVENTS, table.OUTCOMES, table.VERDICTS, table.PENDING, table.FORWARDED):
        assert roles("Write", topic) == {"engine"}, topic
    assert roles("Write", table.commands("tools")) == {"engine"}
    assert roles("Read", table.FORWARDED) == {"engine", "views"}


def test_connectors_answer_and_people_ask() -> None:
    assert roles("Write", table.RESULTS) == {"worker"}
    assert roles("Write", table.APPROVALS) == {"approver", "views"}
    assert roles("Write", table.TASKS) == {"submitter", "views"}
    assert roles("Read", table.commands("tools")) == {"worker"}


def test_the_views_may_look_at_what_waits_for_the_others() -> None:
    for topic in (table.TASKS, table.RESULTS, table.APPROVALS, table.CONTROL):
        assert roles("Read", topic) == {"engine", "views"}, topic
    looks = [g for g in grants("p.", ()) if g.role == "views" and g.prefixed]
    assert any("Read" in g.operations and g.names == ("p.agent.commands.",) for g in looks)


def test_a_changelog_is_its_processors_own() -> None:
    assert roles("Write", table.changelog("engine")) == {"engine"}
    assert roles("Write", table.changelog("worker.tools")) == {"worker"}
    assert roles("Write", table.changelog("views.runs")) == {"views"}


def test_every_topic_has_a_reader_and_a_writer() -> None:
    for topic in table.all_topics(("tools",), ("engine", "worker.tools")):
        assert roles("Write", topic.name), topic.name
        assert roles("Read", topic.name), topic.name


def test_a_new_owner_may_abort_what_a_dead_one_left_open() -> None:
    (grant,) = [
        g for g in grants("p.", ()) if g.role == "engine" and g.resource == "transactional-id"
    ]
    assert grant.prefixed
    assert table.transactional_id("p.", "engine", "host-1").startswith(grant.names[0])


def test_commands_can_be_pasted() -> None:
    lines = commands("kafka:9092", grants("p."), PRINCIPALS | {"engine": "User:CN=an engine"})
    assert lines[0] == (
        "kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal 'User:CN=an engine' "
        "--operation Read --operation Write --operation Create --operation DescribeConfigs "
        "--topic p.agent.engine.changelog"
    )
    assert all("p." in line or line.endswith("--cluster") for line in lines)
