"""What passed between a run and others, for people: model calls, decisions, attempts."""

from __future__ import annotations

from typing import Any

from .fact_lines import error_text, fact, named, rule_text, said
from .terminal import clock, safe, span


def model_calls(section: dict[str, Any]) -> None:
    if not section["calls"]:
        fact("no model was called")
    for call in section["calls"]:
        model = call["model"]
        name = safe(model.get("name") or model.get("provider"), 100)
        about = call["covers"]
        why = f", for a summary of messages {about[0] + 1} to {about[1]}" if about else ""
        again = f", attempt {call['attempt']}" if call["attempt"] > 1 else ""
        fact(
            f"{clock(call['at'])}  step {call['step']}, call {call['action_id']}{again}: "
            f"{name} ({safe(model.get('provider'), 60)}){why}"
        )
        if call["settings"]:
            said("settings", call["settings"], 2)
        if call["tools"]:
            fact("tools: " + ", ".join(safe(tool, 60) for tool in call["tools"]), 2)
        _shown(call)
        answer = call["answer"]
        if answer is None:
            told = f"no answer: {error_text(call['error'])}" if call["error"] else "no answer"
            fact(told, 2)
            continue
        reason = f" ({safe(answer['finish_reason'], 60)})" if answer["finish_reason"] else ""
        fact(f"{clock(answer['at'])}  {safe(answer['by'], 200)} answered{reason}", 2)
        if answer["content"]:
            said("said", answer["content"], 3)
        for asked in answer["calls"]:
            _calls(asked, 3)
        if answer["note"]:
            said("could not be used; it was told", answer["note"], 3)
        if answer["unread"]:
            fact("a message had come meanwhile, so it was asked again", 3)


def _calls(asked: dict[str, Any], depth: int) -> None:
    said(f"calls {safe(asked.get('name'), 60)}", asked.get("arguments"), depth)
    if asked.get("why"):
        said("its reason", asked["why"], depth + 1)
    if asked.get("error"):
        said("could not be called", asked["error"], depth + 1)


def _shown(call: dict[str, Any]) -> None:
    messages = call["messages"]
    old = len(messages) - len(call["new"])
    whole = call["conversation"] + sum(message["role"] == "system" for message in messages[:1])
    window = "" if call["covers"] or len(messages) >= whole else f" of the {whole} there were"
    told = f"{old} as in the call before, and these:" if old else "these:"
    if not call["new"]:
        told = "the same as in the call before"
    fact(f"was shown {len(messages)} messages{window}, {told}", 2)
    for place in call["new"]:
        message = messages[place]
        said(safe(message["role"], 20), message.get("content") or "", 3)
        for asked in message.get("tool_calls", ()):
            _calls(asked, 4)


def decisions(section: dict[str, Any]) -> None:
    if not section["questions"]:
        fact("nobody was asked anything")
    for asked in section["questions"]:
        fact(
            f"{clock(asked['requested_at'])}  {asked['approval_id']} ({asked['kind']}): "
            f"{safe(asked['title'], 300)}"
        )
        _about(asked)
        who = (
            ", ".join(safe(name, 100) for name in asked["approvers"])
            or "anyone but the task's user"
        )
        signed = ", signed" if asked["signed"] else ""
        fact(
            f"may decide: {who}; needed: {asked['required']}{signed}; until {clock(asked['expires_at'])}, "
            f"then {safe(asked['on_timeout'])}",
            2,
        )
        fact(f"digest {asked['digest']}{_holds(asked)}", 2)
        for each in asked["decisions"]:
            _decision(each)
        if asked["given"] is not None:
            said("given", asked["given"], 3)
        _closed(asked)
        for ran in asked["ran"]:
            _ran(ran)


def _about(asked: dict[str, Any]) -> None:
    """What the question is about, and why it came up."""
    if asked["asked_by"] != asked["action_id"]:  # else it is the call that asks, and says the same
        fact(f"about {safe(asked['action_id'], 210)} {safe(asked['tool'])}", 2)
        named(asked["arguments"], 3)
    for name, label in (("question", "question"), ("reason", "the model's reason")):
        if asked[name]:
            said(label, asked[name], 2)
    rule = asked["rule"]
    if isinstance(rule, dict) and "source" in rule:
        fact(f"because: {rule_text(rule)}", 2)
    elif isinstance(rule, dict):
        for error in [rule["error"]] if "error" in rule else rule.get("errors") or ():
            fact(f"because: {error_text(error)}", 2)


def _holds(made: dict[str, Any]) -> str:
    return {
        True: "",
        False: ", WHICH IS NOT THAT OF WHAT IS SHOWN",
        None: ", of the run forked from",
    }[made["digest_holds"]]


def _decision(each: dict[str, Any]) -> None:
    how = each["verified"]
    proved = ", not proved" if how == "none" else f", proved by {safe(how)}" if how else ""
    counted = "" if each["closes"] else " (the question stays open)"
    fact(
        f"{clock(each['decided_at'])}  {safe(each['approver'], 200)}{proved}: {each['decision']}"
        f"{counted}, after {span(each['waited_seconds'])}",
        2,
    )
    if each["reason"]:
        said("reason", each["reason"], 3)
    if each["decision"] == "modify":
        named(each["arguments"], 3)
        fact(f"digest {each['digest']}{_holds(each)}", 3)
    if "to" in each:
        now = ", ".join(safe(name, 100) for name in each["to"]) or "anyone but the task's user"
        fact(f"now asked: {now}", 3)


def _closed(asked: dict[str, Any]) -> None:
    if asked["open"]:
        fact("still open", 2)
    elif not any(each["closes"] for each in asked["decisions"]):
        by = {"result": "a result that came"}.get(
            asked["closed_by"], f"the run's end ({asked['closed_by']})"
        )
        fact(f"closed without a decision, by {safe(by, 200)}", 2)
    elif not asked["ran"] and asked["given"] is None:
        fact("nothing ran because of it", 2)


def _ran(ran: dict[str, Any]) -> None:
    equal = {
        True: "equal to the one decided on",
        False: "NOT EQUAL to the one decided on",
        None: "of the run forked from",
    }[ran["equal"]]
    fact(
        f"{clock(ran['at'])}  ran: {safe(ran['tool'])} as {ran['action_id']}, attempt {ran['attempt']}",
        2,
    )
    fact(f"digest {ran['digest']}, {equal}", 3)


def attempts(section: dict[str, Any]) -> None:
    if not section["actions"]:
        fact("nothing was called")
    for made in section["actions"]:
        by = f", approved by {safe(made['approved_by'], 200)}" if made["approved_by"] else ""
        fact(
            f"{safe(made['action_id'], 210)} {safe(made['tool'])} ({made['kind']}, {made['effect']}): "
            f"{made['status']}, attempts: {made['attempts']}{by}"
        )
        fact(f"key {safe(made['key'], 300)}", 2)
        if made["kind"] not in ("model", "notice"):
            named(made["arguments"], 3)
        for moved in made["history"]:
            number = f" {moved['attempt']}" if moved["attempt"] else ""
            fact(f"{clock(moved['at'])}  {moved['what']}{number}, by {safe(moved['by'], 200)}", 2)
            if "error" in moved:
                fact(error_text(moved["error"]), 3)
            if moved.get("result") is not None:
                said("result", moved["result"], 3)
            if "reason" in moved:
                said("reason", moved["reason"], 3)
            if "of" in moved:
                fact(f"the result of {safe(moved['of'], 210)}", 3)
