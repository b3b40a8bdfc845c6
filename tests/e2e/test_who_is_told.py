"""People are told by mail: once for each occasion, whoever is killed meanwhile.

Counted in the mail server's file, where a mail stands before it is acknowledged.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from typing import Any

import pytest

from tests.cases.deployment import Deployment

from .conftest import Mailbox
from .crowd import questions, submit

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

AT_A_MAIL = "worker as a mail is taken"
"""Between the mail server's yes and the worker's own word."""


def of_run(mailbox: Mailbox, run_id: str) -> list[dict[str, Any]]:
    return [mail for mail in mailbox.mails() if mail["key"].startswith(f"{run_id}/")]


def told(crowd: Deployment, run_id: str) -> list[str]:
    """What the run's events say of the notices that ended."""
    return [
        event["data"]["outcome"]
        for event in crowd.events(run_id)
        if event["type"] == "approver_notified" and event["data"]["outcome"] != "due"
    ]


def test_a_question_a_reminder_and_an_escalation_are_one_mail_each(
    crowd: Deployment, mailbox: Mailbox
) -> None:
    run_id = f"told-{uuid.uuid4().hex[:6]}"
    submit(crowd, [run_id], "told-again")
    to_boss = crowd.until(
        lambda: [m for m in of_run(mailbox, run_id) if m["recipients"] == ["boss@example.org"]],
        "the mail to those above",
    )
    crowd.decide(f"{run_id}/a1", approver="ann")
    crowd.decide(f"{run_id}/a1", approver="cas")
    assert crowd.outcome(run_id)["completed"][0]["approved_by"] == "cas"
    first, second = crowd.topics.wait(
        "agent.verdicts", lambda seen: seen.key == run_id, "both verdicts", count=2
    )
    assert (first.value["accepted"], second.value["accepted"]) == (False, True)

    due = [
        event["data"]
        for event in crowd.events(run_id)
        if event["type"] == "approver_notified" and event["data"]["outcome"] == "due"
    ]
    crowd.until(lambda: len(of_run(mailbox, run_id)) == 2 + len(due), "a mail for each occasion")
    mails = of_run(mailbox, run_id)
    assert max(Counter(mail["key"] for mail in mails).values()) == 1
    subjects = [mail["subject"] for mail in mails if mail["recipients"] == ["ops@example.org"]]
    assert subjects[0] == "Pay 5 to x"
    assert len(subjects) > 2, "open for 2.6 s at least, a reminder each second"
    assert set(subjects[1:]) == {"Reminder: Pay 5 to x"}
    above = [mail["subject"] for mail in mails if mail["recipients"] == ["boss@example.org"]]
    assert to_boss[0]["subject"] == above[0] == "Escalated: Pay 5 to x"
    assert set(above[1:]) <= {"Reminder: Pay 5 to x"}
    assert f"perdure approve {run_id}/a1" in mails[0]["body"]
    outcomes = told(crowd, run_id)
    assert set(outcomes) == {"sent"}
    assert len(outcomes) in (len(mails), len(mails) - 1), "one may be on its way at the end"


def test_no_mail_is_sent_twice_whoever_is_killed(crowd: Deployment, mailbox: Mailbox) -> None:
    """What was on its way when its worker died may be lost: the run says `unknown`, never `sent`."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    prefix = f"mail-{uuid.uuid4().hex[:6]}-"
    names = [f"{prefix}{number}" for number in range(24)]
    kills = sorted((chance.uniform(0.1, 3), role) for role in ("worker", "engine", AT_A_MAIL))
    print(f"\nseed {seed}: kills {[(round(at, 2), role) for at, role in kills]}")
    began = time.monotonic()
    moments = sorted(
        [(3 * n / len(names), "") for n in range(len(names))] + [(at, role) for at, role in kills]
    )
    to_come = list(reversed(names))
    for at, role in moments:
        crowd.until(lambda at=at: time.monotonic() >= began + at, "its time", every=0.005)
        if role:
            if role == AT_A_MAIL:
                count = len(mailbox.mails())
                if to_come:  # else all mails there will be may be there
                    submit(crowd, [to_come.pop()], "told")
                    crowd.until(lambda n=count: len(mailbox.mails()) > n, "a mail", every=0.001)
            crowd.until(lambda role=role: _killed(crowd, role.split()[0]), f"a {role} to kill")
        elif to_come:
            submit(crowd, [to_come.pop()], "told")
    crowd.until(lambda: questions(crowd, prefix) == set(names), "all questions", 40)
    crowd.until(
        lambda: all(told(crowd, name) for name in names), "what became of each mail", 40, 0.2
    )
    sent = {name: len(of_run(mailbox, name)) for name in names}
    outcomes = {name: told(crowd, name) for name in names}
    print(f"mails {Counter(sent.values())}, told {Counter(map(str, outcomes.values()))}")
    assert max(sent.values()) == 1, f"seed {seed}"
    for name in names:
        (outcome,) = outcomes[name]
        assert sent[name] == 1 or outcome != "sent", f"seed {seed}: {name} has no mail"
        assert sent[name] == 0 or outcome in ("sent", "unknown"), f"seed {seed}: {name}"
    for name in names:
        crowd.decide(f"{name}/a1", "cancel_run")
    for name in names:
        assert crowd.outcome(name)["status"] == "cancelled"
    assert {name: len(of_run(mailbox, name)) for name in names} == sent


def _killed(crowd: Deployment, role: str) -> bool:
    try:
        crowd.kill(role)
    except (AssertionError, ProcessLookupError):  # it is being started again
        return False
    return True
