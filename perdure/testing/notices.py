"""Whether people were told of their questions once, and what is said of it is so.

Judged by the mails that the fake outside sent: each says which question, which group and which
occasion it is about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from .history import RunHistory
from .outside import Outside
from .services import MAIL


def misinformed(runs: Mapping[str, RunHistory], outside: Outside) -> Iterator[str]:
    """What is wrong. (That no key happened twice is judged with all other calls.)"""
    mails: Counter[tuple[str, str, str]] = Counter()
    for effect in outside.effects:
        if effect.tool == MAIL:
            said = effect.arguments
            question = said["text"].rpartition("perdure approve ")[2]
            occasion = said["subject"].partition(":")[0]
            if occasion not in ("Reminder", "Escalated"):
                occasion = "Opened"
            mails[question, occasion, said["to"]] += 1
    reminders: Counter[tuple[str, str]] = Counter()
    for run_id, run in runs.items():
        begun: Counter[tuple[int, str, str]] = Counter()
        for n, action in run.actions.items():
            if action["kind"] != "notice" or n in run.inherited:
                continue
            begun[action["ask"], action["group"], action["occasion"]] += 1
            if action["occasion"] == "reminder":
                reminders[f"{run_id}/a{action['ask']}", action["group"]] += 1
            happened, said = outside.by_action[f"{run_id}/{n}"], run.notified.get(n)
            if (said == "sent" and not happened) or (said == "failed" and happened):
                yield f"3: notice {run_id}/{n} is said to be {said}, and was sent {happened} times"
        for (ask, group, occasion), times in begun.items():
            if occasion != "reminder" and times > 1:
                yield f"2: {group} is told {times} times that {run_id}/a{ask} is {occasion}"
    for (question, occasion, group), times in mails.items():
        most = reminders[question, group] if occasion == "Reminder" else 1
        if times > most:
            yield f"2: {group} had {times} mails ({occasion}) of {question}, at most {most} are due"
