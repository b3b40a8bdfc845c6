"""An audit as an auditor reads it at a terminal: sections, one line a fact, the reader's own times.

Whatever a model, a user or a service wrote goes through `safe` or `paragraphs`. Long values are
cut, and say so: ``--json`` has them whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .audit_exchanges import attempts, decisions, model_calls
from .fact_lines import error_text, fact, rule_text, said
from .moments import zone
from .terminal import clock, emit, safe

_TITLES: Final = {
    "asked": "1. What was asked, and by whom",
    "model": "2. What the model was shown and answered",
    "versions": "3. Agent and tool versions",
    "rules": "4. Which rules were evaluated, and why a person was asked or not",
    "decisions": "5. Who decided, how that was proved, and what ran",
    "attempts": "6. Every call: key, attempts, result",
    "notices": "7. Notices sent to people",
    "end": "8. How it ended",
    "chain": "9. The chain of events",
}


def tell(section: dict[str, Any]) -> None:
    """Print one section."""
    name = section["section"]
    if name == "asked":
        emit(f"times are those of {zone()}")
    emit()
    emit(_TITLES[name], "bold")
    _TEXTS[name](section)


# --- the sections ------------------------------------------------------------------------------


def _asked(section: dict[str, Any]) -> None:
    fact(
        f"{clock(section['at'])}  user {safe(section['user_id'])} asked the agent "
        f"{safe(section['agent'])}"
    )
    fact(f"session {safe(section['session_id'], 200)}, tenant {safe(section['tenant'], 200)}")
    if section["fork_of"]:
        source = section["fork_of"]
        when = f" on {clock(section['forked_at'])}" if section["forked_at"] else ""
        fact(
            f"a fork of {safe(source['run_id'], 200)} at version {source['version']}, made{when}: "
            f"up to there the events are that run's (`perdure audit {safe(source['run_id'], 200)}`)"
        )
    for turn in section["messages"] or ():
        said(f"earlier, {safe(turn.get('role', 'user'), 20)}", turn.get("content"))
    if section["input"] is not None:
        said("input", section["input"])
    for step in section["plan"] or ():
        said(f"step {safe(step['id'], 60)}: {safe(step['tool'], 60)}", step["arguments"])
    for name, value in (section["metadata"] or {}).items():
        said(f"metadata {safe(name, 60)}", value)
    limits = {name: value for name, value in (section["budget"] or {}).items() if value is not None}
    if limits:
        fact("budget: " + ", ".join(f"{safe(value)} {name}" for name, value in limits.items()))
    if section["deadline_at"] is not None:
        fact(f"deadline: {clock(section['deadline_at'])}")
    if section["origin"]:
        lies = section["origin"]
        fact(
            f"the task lies at {safe(lies.get('topic'))}-{lies.get('partition')}, "
            f"offset {lies.get('offset')}"
        )
    for request in section["requests"]:
        what = _REQUESTS.get(request["what"], request["what"])
        fact(f"{clock(request['at'])}  {safe(request['actor'], 200)}: {what}")
        for name in ("content", "reason", "budget"):
            if name in request:
                said(name, request[name], 2)


_REQUESTS: Final = {
    "run_paused": "pause",
    "run_resumed": "resume",
    "message_received": "a message to the agent",
    "budget_changed": "extend the budget",
    "ending_started": "end the run",
    "status_changed": "try the failed run again",
}


def _versions(section: dict[str, Any]) -> None:
    agent = section["agent"]
    fact(f"agent {safe(agent['name'])}, version {agent.get('version', 1)}")
    model = agent.get("model")
    if model:
        fact(
            f"model {safe(model.get('name') or '')} ({safe(model.get('provider'))})".replace(
                "  ", " "
            )
        )
    for each in agent.get("fallback_models") or ():
        fact(f"fallback model {safe(each.get('name') or '')} ({safe(each.get('provider'))})")
    if agent.get("instructions"):
        said("instructions", agent["instructions"])
    for tool in section["tools"]:
        query = ", can be asked" if tool["has_query"] else ""
        fact(
            f"tool {safe(tool['name'])}, version {tool['version']}: {safe(tool['effect'])}{query}, "
            f"asks: {safe(tool['approval'] or 'always', 300)}"
        )
    for newer in section["newer"]:
        fact(
            f"tool {safe(newer['tool'])}, version {newer['version']}, from event {newer['event']} on"
        )


def _rules(section: dict[str, Any]) -> None:
    if not section["proposals"]:
        fact("no call was proposed")
    for made in section["proposals"]:
        fact(
            f"{clock(made['at'])}  {safe(made['action_id'], 210)} {safe(made['tool'])}, proposed by "
            f"{safe(made['proposed_by'], 200)}"
        )
        for rule in made["rules"]:
            fact(rule_text(rule), 2)
        asked = f" ({made['asked']})" if made["asked"] else ""
        fact(safe(made["why"], 500) + asked, 2)


def _notices(section: dict[str, Any]) -> None:
    if not section["notices"]:
        fact("none")
    for notice in section["notices"]:
        through = (
            f" through {safe(notice['tool'])} ({notice['action_id']})"
            if notice["action_id"]
            else ""
        )
        fact(
            f"{clock(notice['at'])}  to {safe(notice['group'])} about {notice['approval_id']} "
            f"({safe(notice['occasion'])}){through}: {safe(notice['outcome'] or 'not answered yet')}"
        )
        if notice["error"]:
            fact(error_text(notice["error"]), 2)


def _end(section: dict[str, Any]) -> None:
    if not section["over"]:
        fact(f"it has not ended: {section['status']}{', paused' if section['paused'] else ''}")
        for wait in section["waiting_for"]:
            about = wait.get("approval_id") or wait.get("target")
            fact(f"waits for {wait['kind']}: {safe(about, 210)}", 2)
    else:
        fact(f"{clock(section['finished_at'])}  {section['status']}")
    if section["ending"]:
        said(
            f"because of {safe(section['ending'].get('actor', 'engine'), 200)}",
            section["ending"].get("reason"),
        )
    for error in section["errors"]:
        fact(f"error: {error_text(error)}")
    used = section["usage"]
    fact(
        f"{used['steps']} steps, {used['input_tokens']} + {used['output_tokens']} tokens, "
        f"cost {used['cost']:g}"
    )
    told = section["outcome"]
    if told is None:
        return
    fact(f"outcome: {told['status']}, {'complete' if told['complete'] else 'not complete'}")
    said("text", told["text"], 2)
    if told["result"] is not None:
        said("result", told["result"], 2)
    for name in ("completed", "not_completed", "in_doubt", "compensated", "degraded"):
        if told[name]:
            said(
                name.replace("_", " "),
                ", ".join(told[name]) if isinstance(told[name], list) else told[name],
                2,
            )


def _chain(section: dict[str, Any]) -> None:
    fact(f"{section['events']} events, the last is version {section['version']}")
    fact(f"head {section['hash']}")
    if section["holds"]:
        fact("each event's hash is that of its content and of the event before")
    else:
        fact(f"IT DOES NOT HOLD: {safe(section['problem'], 1_000)}")
    told = section["outcome"]
    if told is None:
        fact("there is no outcome to compare with")
    elif told["equal"]:
        fact("the outcome names the same version, hash and status")
    else:
        fact(f"THE OUTCOME DIFFERS: version {told['version']}, {told['hash']}")


_TEXTS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "asked": _asked,
    "model": model_calls,
    "versions": _versions,
    "rules": _rules,
    "decisions": decisions,
    "attempts": attempts,
    "notices": _notices,
    "end": _end,
    "chain": _chain,
}
