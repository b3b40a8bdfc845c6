"""GET: runs, a run, its timeline and calls, questions, agents, tools, figures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from aiohttp import web
from perdure.schemas.records import ApprovalRequest

from ..access import Caller
from ..answers import Answers, NoRun
from ..index import Query
from .requests import (
    Problem,
    answer,
    approver,
    bad,
    checked,
    cursor_of,
    encoded,
    flag,
    in_path,
    number,
    place_of,
    raw_answer,
    viewer,
    word,
)
from .routing import Routing

audit = logging.getLogger("perdure.audit")
audit.setLevel(logging.INFO)  # its own, so that no --log-level silences it
T = TypeVar("T")
_STATUSES: Final = ("running", "waiting_approval", "compensating", "done", "failed", "cancelled")
_TIME: Final = 10**15


def no_run(run_id: str) -> Problem:
    return Problem(404, "no_run", f"no run {run_id} is known here (yet)")


def may_decide(asked: ApprovalRequest, who: Caller) -> bool:
    """Whether the page offers to decide; the engine is the judge.

    A group among the approvers is not resolved here: whoever holds the role may try.
    """
    if not who.may("approver"):
        return False
    if asked.kind == "clarification" and "user" in asked.approvers:
        return who.user == asked.user_id
    if not asked.approvers:
        return who.user != asked.user_id
    return who.user in asked.approvers


class Reads:
    def __init__(self, answers: Answers, routing: Routing) -> None:
        self._answers = answers
        self._routing = routing
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="answers")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def add(self, app: web.Application) -> None:
        app.router.add_get("/api/me", self.me)
        app.router.add_get("/api/runs", self.runs)
        app.router.add_get("/api/runs/{run_id}", self.run)
        app.router.add_get("/api/runs/{run_id}/timeline", self.timeline)
        app.router.add_get("/api/runs/{run_id}/actions", self.actions)
        app.router.add_get("/api/runs/{run_id}/events/{version}", self.event)
        app.router.add_get("/api/approvals", self.approvals)
        app.router.add_get("/api/approvals/{run_id}/{approval}", self.approval)
        app.router.add_get("/api/agents", self.agents)
        app.router.add_get("/api/tools", self.tools)
        app.router.add_get("/api/stats", self.stats)

    async def me(self, request: web.Request) -> web.Response:
        who = viewer(request)
        return answer({"user": who.user, "roles": sorted(who.roles), "dev": who.dev})

    async def runs(self, request: web.Request) -> web.Response:
        viewer(request)
        query = self._query(request)
        here = await self._in_thread(lambda: self._answers.find(query))
        found, total = list(here.runs), here.total
        for there in await self._routing.everybody(request):
            found += there["runs"]
            total += there["total"]
        newest: dict[str, dict[str, Any]] = {}
        for row in found:  # a partition on its way may be shown by two
            known = newest.get(row["run_id"])
            if known is None or known["version"] < row["version"]:
                newest[row["run_id"]] = row
        page = sorted(newest.values(), key=lambda row: (-row["updated_at"], row["run_id"]))
        page = page[: query.limit]
        more = len(page) == query.limit and total > len(page)
        last = cursor_of((page[-1]["updated_at"], page[-1]["run_id"])) if more else None
        return answer({"runs": page, "next": last, "total": total})

    def _query(self, request: web.Request) -> Query:
        statuses = request.query.getall("status", [])
        if unknown := [each for each in statuses if each not in _STATUSES]:
            raise bad(f"status {unknown[0][:40]!r} is none of {', '.join(_STATUSES)}")
        q = request.query.get("q") or None
        if q is not None and len(q) > 200:
            raise bad("q may have 200 characters")
        limit = number(request, "limit", 50, 1, 200)
        assert limit is not None
        return Query(
            status=tuple(dict.fromkeys(statuses)),
            agent=word(request, "agent"),
            user_id=word(request, "user_id"),
            session_id=word(request, "session_id"),
            tenant=word(request, "tenant"),
            since=number(request, "since", None, 0, _TIME),
            until=number(request, "until", None, 0, _TIME),
            q=q,
            stuck_before=self._answers.stuck_before() if flag(request, "stuck") else None,
            quarantined=flag(request, "quarantined"),
            limit=limit,
            after=place_of(request),
        )

    async def _of_run(
        self, request: web.Request, work: Callable[[str], dict[str, Any] | None], missing: str = ""
    ) -> web.StreamResponse:
        run_id = in_path(request, "run_id", "run_id")

        async def here() -> web.StreamResponse:
            try:  # encoded there too: a run of 2,000 steps takes the loop's time otherwise
                found = await self._in_thread(lambda: _encoded(work(run_id)))
            except NoRun:
                raise no_run(run_id) from None
            if found is None:
                raise Problem(404, "not_found", missing)
            return raw_answer(found)

        return await self._routing.of_run(request, run_id, here)

    async def run(self, request: web.Request) -> web.StreamResponse:
        viewer(request)
        return await self._of_run(request, lambda run_id: self._answers.run(run_id))

    async def timeline(self, request: web.Request) -> web.StreamResponse:
        viewer(request)
        after = number(request, "after", 0, 0, 2**53) or 0
        limit = number(request, "limit", 500, 1, 2000) or 500
        return await self._of_run(
            request, lambda run_id: self._answers.timeline(run_id, after, limit)
        )

    async def actions(self, request: web.Request) -> web.StreamResponse:
        viewer(request)
        return await self._of_run(request, lambda run_id: self._answers.actions(run_id))

    async def event(self, request: web.Request) -> web.StreamResponse:
        who = viewer(request)
        text = request.match_info["version"]
        if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) < 1:
            raise bad("a version is a whole number from 1")
        uncover = flag(request, "uncover")
        if uncover:
            approver(request)
            run_id = in_path(request, "run_id", "run_id")
            audit.warning("audit: %s uncovers event %s of run %s", who.user, text, run_id)
        return await self._of_run(
            request,
            lambda run_id: self._answers.event(run_id, int(text), uncover=uncover),
            f"the run has no event {text} (yet)",
        )

    async def approvals(self, request: web.Request) -> web.Response:
        who = viewer(request)
        found = self._answers.questions(word(request, "kind"), word(request, "agent"))
        wanted = word(request, "approver")
        if wanted is not None:
            found = [asked for asked in found if wanted in asked.approvers or not asked.approvers]
        limit = number(request, "limit", 50, 1, 200) or 50
        place = place_of(request)
        left = [a for a in found if place is None or (a.expires_at, a.approval_id) > place]
        page = left[:limit]
        shown = [
            {**self._answers.shown(asked), "may_decide": may_decide(asked, who)} for asked in page
        ]
        last = None
        if len(left) > limit:
            last = cursor_of((page[-1].expires_at, page[-1].approval_id))
        return answer({"approvals": shown, "next": last, "total": len(found)})

    async def approval(self, request: web.Request) -> web.StreamResponse:
        who = viewer(request)
        run_id = in_path(request, "run_id", "run_id")
        name = checked("approval", request.match_info["approval"])
        asked = self._answers.board.question(f"{run_id}/{name}")
        if asked is not None:
            shown = self._answers.shown(asked)
            return answer(
                {**shown, "open": True, "closed_by": None, "may_decide": may_decide(asked, who)}
            )
        return await self._of_run(
            request,
            lambda run: _with_may(self._answers.closed_question(run, int(name[1:]))),
            f"no question {name} of {run_id} is known here (yet)",
        )

    async def agents(self, request: web.Request) -> web.Response:
        viewer(request)
        made = await self._in_thread(self._answers.agents)
        for there in await self._routing.everybody(request):
            counts = {each["name"]: each["runs"] for each in there["agents"]}
            for each in made:
                each["runs"] = _added(each["runs"], counts.get(each["name"], {}))
        return answer({"agents": made})

    async def tools(self, request: web.Request) -> web.Response:
        viewer(request)
        made = await self._in_thread(self._answers.tools)
        for there in await self._routing.everybody(request):
            known = {each["name"]: each for each in there["tools"]}
            for each in made:
                other = known.get(each["name"])
                if other is not None:
                    each["calls"] += other["calls"]
                    each["failures"] += other["failures"]
                    if (other["last_at"] or 0) > (each["last_at"] or 0):
                        each["last_at"], each["last_status"] = (
                            other["last_at"],
                            other["last_status"],
                        )
        return answer({"tools": made})

    async def stats(self, request: web.Request) -> web.Response:
        viewer(request)
        made = await self._in_thread(self._answers.stats)
        for there in await self._routing.everybody(request):
            made["totals"] = _added(made["totals"], there["totals"])
            made["waiting"] = _added(made["waiting"], there["waiting"])
            rates = {each["at"]: each for each in there["rates"]}
            made["rates"] = [
                {**_added(each, rates.get(each["at"], {})), "at": each["at"]}
                for each in made["rates"]
            ]
            for name in ("stuck", "quarantined"):
                made[name] += there[name]
        return answer(made)


def _encoded(found: dict[str, Any] | None) -> bytes | None:
    return None if found is None else encoded(found)


def _with_may(found: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {**found, "may_decide": False}


def _added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
