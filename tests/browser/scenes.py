"""Runs, questions and a catalog as the views' API gives them, made by hand for the page's tests."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

STATUSES = ("running", "waiting_approval", "compensating", "done", "failed", "cancelled")
TASKS = (
    "Refund order A-{n}: the parcel arrived damaged",
    "Customer asks where order A-{n} is",
    "Write the weekly report on open invoices ({n})",
    "Change the delivery address of order A-{n}",
    "Check the supplier's invoice {n} against the contract",
    "Cancel subscription S-{n} and confirm by mail",
)


def row(run_id: str, now: int, **fields: Any) -> Json:
    """A line of the list of runs."""
    made: Json = {
        "run_id": run_id,
        "agent": "refunds",
        "user_id": "uma",
        "session_id": run_id,
        "tenant": "default",
        "status": "running",
        "paused": False,
        "quarantined": False,
        "title": run_id,
        "current_step": "",
        "steps_done": 0,
        "steps_total": None,
        "waiting_for": [],
        "usage": {"steps": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0},
        "errors": 0,
        "complete": None,
        "version": 1,
        "started_at": now,
        "updated_at": now,
        "finished_at": None,
    }
    assert set(fields) <= set(made), set(fields) - set(made)
    return {**made, **fields}


def crowd(count: int, now: int, seed: int = 7) -> list[Json]:
    """Many runs, newest change first."""
    chance = random.Random(seed)
    made = []
    for n in range(count):
        at = now - n * 1700 - chance.randrange(1500)
        status = chance.choices(STATUSES, (6, 3, 1, 80, 6, 4))[0]
        ended = status in ("done", "failed", "cancelled")
        total = chance.choice((None, 3, 5, 8))
        done = total if total and ended else chance.randrange(1, 3)
        waits = []
        if status == "waiting_approval":
            approval = f"run-{count - n:06d}/a1"
            waits = [{"kind": "action", "approval_id": approval, "since": at, "until": at + HOUR}]
        tokens = chance.randrange(300, 40_000)
        made.append(
            row(
                f"run-{count - n:06d}",
                at,
                agent=chance.choice(("refunds", "support", "invoices")),
                user_id=chance.choice(("uma", "omar", "lin", "jo")),
                status=status,
                title=chance.choice(TASKS).format(n=1000 + n),
                steps_done=done,
                steps_total=total,
                waiting_for=waits,
                usage={
                    "steps": done,
                    "input_tokens": tokens,
                    "output_tokens": tokens // 9,
                    "cost": round(tokens * 2.1e-6, 4),
                },
                errors=chance.choice((0, 0, 0, 0, 1, 2)),
                complete=(chance.random() > 0.05) if status == "done" else None,
                version=chance.randrange(8, 60),
                started_at=at - chance.randrange(2, 900) * SECOND,
                finished_at=at if ended else None,
            )
        )
    return made


class Scene:
    """One run, told from its start: each call moves the time on and writes entries and actions."""

    def __init__(self, run_id: str, at: int, task: Any, **fields: Any) -> None:
        self.run_id = run_id
        self.at = at
        self.row = row(run_id, at, **{"title": str(task)[:200], **fields})
        self.input = task
        self.entries: list[Json] = []
        self.actions: list[Json] = []
        self.approvals: list[Json] = []
        self.outcome: Json | None = None
        self.step = 0
        self.plan: list[Json] = []
        self._say(
            "run_started", f"Started with {str(task)[:160]}", actor=f"user:{self.row['user_id']}"
        )

    def _say(
        self, kind: str, title: str, /, *, tone: str = "plain", actor: str = "engine", at: int | None = None,
        action: Json | None = None, **data: Any,
    ) -> None:  # fmt: skip
        self.entries.append(
            {
                "version": 0,
                "at": self.at if at is None else at,
                "type": kind,
                "actor": actor,
                "step": self.step,
                "action_id": None if action is None else action["action_id"],
                "title": title,
                "tone": tone,
                "data": data,
            }
        )

    def wait(self, ms: int) -> None:
        self.at += ms

    def begin_step(self, title: str) -> None:
        self.step += 1
        self._say("step_started", f"Step {self.step}: {title}", step=self.step, title=title)

    def _action(self, kind: str, tool: str, arguments: Any, effect: str) -> Json:
        n = len(self.actions) + 1
        made: Json = {
            "action_id": f"{self.run_id}/{n}",
            "step": self.step,
            "tool": tool,
            "arguments": arguments,
            "effect": effect,
            "idempotency_key": f"{self.run_id}/{n}/5e8c21aa",
            "cache_key": f"{self.row['session_id']}_{self.run_id}/{n}",
            "attempts": 0,
            "status": "proposed",
            "phase": "idle",
            "result": None,
            "error": None,
            "approval_id": None,
            "approved_by": None,
            "degraded": None,
            "started_at": None,
            "finished_at": None,
            "kind": kind,
            "attempts_list": [],
            "approval": None,
            "tokens": 0,
            "cost": 0.0,
        }
        self.actions.append(made)
        return made

    def decide(
        self, content: str | None, *calls: str, ms: int = 1400, model: str = "gpt-4.1-mini"
    ) -> None:
        """The model's reply that opens a step."""
        self.begin_step(model)
        made = self._action("model", model, None, "read_only")
        tokens = 900 + 310 * len(self.actions)
        made.update(tokens=tokens, cost=round(tokens * 2e-6, 4))
        self.attempt(made, ms, "succeeded")
        self.at += ms
        named = [{"id": f"c{i}", "name": name, "arguments": {}} for i, name in enumerate(calls)]
        words = "The model calls " + ", ".join(calls) if calls else f"The model says: {content}"
        self._say("model_replied", words, tone="model", actor=f"model:{model}", action=made,
                  n=len(self.actions), content=content, calls=named, finish_reason="stop")  # fmt: skip
        usage = self.row["usage"]
        usage["input_tokens"] += tokens - 120
        usage["output_tokens"] += 120
        usage["cost"] = round(usage["cost"] + made["cost"], 4)

    def call(
        self, tool: str, arguments: Any, effect: str = "read_only", kind: str = "tool"
    ) -> Json:
        made = self._action(kind, tool, arguments, effect)
        self._say("action_proposed", f"{tool} {arguments}"[:120], action=made, n=len(self.actions))
        return made

    def attempt(
        self, action: Json, ms: int, outcome: str | None, *, after: int = 0, error: Json | None = None,
        result: Any = None,
    ) -> None:  # fmt: skip
        """One try: it begins ``after`` ms from now and takes ``ms``; an outcome None is still open."""
        begun = self.at + after
        action["attempts"] += 1
        ended = None if outcome is None else begun + ms
        action["attempts_list"].append(
            {
                "attempt": action["attempts"],
                "requested_at": begun,
                "started_at": begun + min(12, ms // 4),
                "ended_at": ended,
                "outcome": outcome,
                "error": error,
            }
        )
        action["started_at"] = action["started_at"] or begun
        action.update(
            status={"succeeded": "succeeded", "adopted": "succeeded", None: "started"}.get(
                outcome, "failed"
            ),
            finished_at=ended,
            error=error,
            result=result,
        )
        title = f"{action['tool']} {outcome}" + (f": {error['code']}" if error else "")
        if outcome is not None:
            self._say(f"action_{outcome}", title, tone="bad" if error else "good", at=ended, action=action,
                      n=int(action["action_id"].rsplit("/", 1)[1]), error=error)  # fmt: skip

    def ask(
        self,
        kind: str,
        title: str,
        *,
        action: Json | None = None,
        within: int = HOUR,
        **fields: Any,
    ) -> Json:
        """A question to a person; open until `answer`."""
        n = len(self.approvals) + 1
        made = question(f"{self.run_id}/a{n}", self.at, kind=kind, title=title, agent=self.row["agent"],
                        user_id=self.row["user_id"], expires_at=self.at + within, input=self.input, **fields)  # fmt: skip
        if action is not None:
            made.update(action_id=action["action_id"], tool=action["tool"], arguments=action["arguments"],
                        effect=action["effect"])  # fmt: skip
            action.update(status="waiting_approval", approval_id=made["approval_id"])
            action["approval"] = {
                "approval_id": made["approval_id"], "kind": kind, "title": title, "open": True, "closed_by": None,
                "decisions": [], "original_arguments": None, "requested_at": self.at,
                "expires_at": self.at + within,
            }  # fmt: skip
        self.approvals.append(made)
        number = None if action is None else int(action["action_id"].rsplit("/", 1)[1])
        self._say("approval_requested", f"Asked ({kind}): {title}", tone="wait",
                  approval={"n": n, "kind": kind, "action": number, "title": title})  # fmt: skip
        waits = {
            "kind": kind,
            "approval_id": made["approval_id"],
            "since": self.at,
            "until": self.at + within,
        }
        self.row["waiting_for"] = [*self.row["waiting_for"], waits]
        self.row["status"] = "waiting_approval"
        return made

    def answer(
        self, asked: Json, decision: str, approver: str, reason: str | None = None, **changed: Any
    ) -> None:
        n = int(asked["approval_id"].rsplit("a", 1)[1])
        said = {
            "decision": decision,
            "approver": approver,
            "verified": "token",
            "at": self.at,
            "reason": reason,
        }
        self._say("approval_decided", f"{approver} decided a{n}: {decision}" + (f": {reason}" if reason else ""),
                  tone="person", actor=f"approver:{approver}", n=n, closes=True, decision=decision)  # fmt: skip
        self.approvals.remove(asked)
        self.row["waiting_for"] = [
            w for w in self.row["waiting_for"] if w["approval_id"] != asked["approval_id"]
        ]
        self.row["status"] = "running"
        for action in self.actions:
            if action["approval_id"] == asked["approval_id"]:
                action["approval"].update(open=False, closed_by=approver, decisions=[said])
                action.update(status="rejected" if decision == "reject" else "approved")
                if decision != "reject":
                    action["approved_by"] = approver
                if changed:
                    action["approval"]["original_arguments"] = action["arguments"]
                    action["arguments"] = changed["arguments"]

    def say(
        self, kind: str, title: str, /, *, tone: str = "plain", actor: str = "engine", **data: Any
    ) -> None:
        self._say(kind, title, tone=tone, actor=actor, **data)

    def finish(self, status: str, text: str, *, complete: bool = True, result: Any = None) -> None:
        self._say(
            "run_finished",
            f"Finished: {status}",
            tone="good" if status == "done" else "bad",
            status=status,
        )
        made = {**self.row, "status": status, "complete": complete, "result": result, "text": text}
        self.outcome = {
            name: made[name]
            for name in ("run_id", "agent", "user_id", "session_id", "tenant", "status", "complete", "result", "text", "usage")
        } | {
            "metadata": {},
            "completed": [a for a in self.actions if a["status"] == "succeeded" and a["kind"] == "tool"],
            "not_completed": [a for a in self.actions if a["status"] in ("failed", "rejected", "skipped")],
            "in_doubt": [a for a in self.actions if a["status"] == "in_doubt"],
            "compensated": [a for a in self.actions if a["status"] == "compensated"],
            "degraded": [],
            "errors": [],
            "version": len(self.entries),
            "hash": "9f" * 32,
            "finished_at": self.at,
        }  # fmt: skip
        self.row.update(status=status, complete=complete, finished_at=self.at, waiting_for=[])

    def close(self) -> Scene:
        """Numbers the entries in the order of their times, as the log would."""
        self.entries.sort(key=lambda entry: entry["at"])
        for version, entry in enumerate(self.entries, 1):
            entry["version"] = version
        self.row.update(
            version=len(self.entries),
            updated_at=self.entries[-1]["at"],
            steps_done=self.step if self.outcome else max(0, self.step - 1),
            errors=sum(1 for a in self.actions for t in a["attempts_list"] if t["error"]),
        )
        self.row["usage"]["steps"] = self.step
        return self

    def whole(self) -> Json:
        """``run`` of GET /api/runs/RUN."""
        return {
            **self.row,
            "plan": self.plan,
            "key_state": {"confirmed_items": ["item 1"], "open": []},
            "summary": None,
            "budget": {"steps": 20, "tokens": 50_000, "seconds": 86_400.0},
            "last_api_call_status": {
                action["tool"]: {"status": action["status"], "code": "", "action_id": action["action_id"],
                                 "attempt": action["attempts"], "at": self.at, "consecutive": 1}
                for action in self.actions
            },
            "input": self.input,
            "metadata": {"channel": "mail"},
            "definition": {"agent": self.row["agent"], "model": {"provider": "openai", "name": "gpt-4.1-mini"},
                           "tools": sorted({action["tool"] for action in self.actions})},
            "fork_of": None,
        }  # fmt: skip


ALLOWED = {
    "action": ["approve", "modify", "reject", "cancel_run"],
    "clarification": ["answer", "cancel_run"],
    "authority": ["approve", "reject", "cancel_run"],
    "handover": ["retry", "answer", "cancel_run"],
    "in_doubt": ["mark_done", "mark_not_done", "cancel_run"],
    "budget": ["extend", "reject", "cancel_run"],
}


def question(approval_id: str, at: int, *, kind: str = "action", title: str, **fields: Any) -> Json:
    """An ApprovalRequest as the API gives it."""
    made: Json = {
        "run_id": approval_id.rsplit("/", 1)[0],
        "agent": "refunds",
        "user_id": "uma",
        "session_id": "s",
        "tenant": "default",
        "metadata": {},
        "approval_id": approval_id,
        "kind": kind,
        "title": title,
        "tool": None,
        "action_id": None,
        "arguments": None,
        "effect": None,
        "reason": None,
        "rule": None,
        "question": None,
        "history": {"completed": [], "errors": []},
        "input": None,
        "allowed_decisions": ALLOWED[kind],
        "approvers": ["ann", "bob"],
        "required": 1,
        "decisions": [],
        "requested_at": at,
        "expires_at": at + HOUR,
        "on_timeout": "cancel_run",
        "digest": "3b7c" * 16,
        "signed": False,
        "escalated": False,
        "url": None,
        "may_decide": True,
    }
    assert set(fields) <= set(made), set(fields) - set(made)
    return {**made, **fields}
