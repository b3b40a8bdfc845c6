"""The HTTP API over tables in memory: what is answered, what is refused, and in which words."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from perdure.schemas import topics
from perdure.schemas.records import RunEvent, Verdict
from perdure.streams.core.apply import fold
from perdure.streams.views import index
from perdure.streams.views.access import Access, Rate
from perdure.streams.views.api import writes
from perdure.streams.views.projections.exact import SAFE

from .histories import golden
from .world import ANN, BOB, EVE, World, access, client, local

NOW = 1_750_000_000_000


def until_it_waits(events: list[RunEvent]) -> list[RunEvent]:
    changes = [n for n, event in enumerate(events) if event.type == "status_changed"]
    first = next(n for n in changes if events[n].data["to"] == "waiting_approval")
    return events[: first + 1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(access(tmp_path_factory.mktemp("tokens") / "tokens.jsonl"))
    for n in range(25):
        made.feed(golden("0.1-first-plan", f"plan-{n:02}", NOW + n * 1000, user_id=f"u{n % 3}"))
    made.feed(until_it_waits(golden("0.1-first-handover", "waits", NOW + 60_000)))
    made.feed(golden("0.1-first-model_loop", "big", NOW + 90_000))
    made.feed(golden("0.1-first-plan", "middle", NOW)[4:])
    made.ask()
    made.ask(approval_id="r2/a1", run_id="r2", approvers=[], user_id="bob", expires_at=10**11)
    return made


@pytest.fixture(scope="module")
def address(world: World) -> Iterator[str]:
    with world.served() as made:
        yield made


@pytest.fixture
def ann(address: str) -> Iterator[httpx.Client]:
    with client(address) as made:
        yield made


@pytest.fixture
def bob(address: str) -> Iterator[httpx.Client]:
    with client(address, BOB) as made:
        yield made


def get(who: httpx.Client, path: str, **parameters: Any) -> Any:
    found = who.get(path, params=parameters)
    assert found.status_code == 200, found.text
    return found.json()


def error(found: httpx.Response, status: int) -> str:
    assert found.status_code == status, found.text
    told = found.json()["error"]
    assert set(told) == {"code", "message"}
    return str(told["message"])


# --- lists -----------------------------------------------------------------------------------


@pytest.mark.parametrize("few", [1_000, 10])
def test_pages_of_a_free_text_hold_every_run_once(
    ann: httpx.Client, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """What is rare is found in one look, what is not page by page: nobody can tell which."""
    monkeypatch.setattr(index, "_FEW", few)
    seen: list[str] = []
    cursor = ""
    while True:
        page = get(ann, "/api/runs", limit=5, q="plan-", cursor=cursor)
        assert page["total"] == 25
        seen += [row["run_id"] for row in page["runs"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert seen == [row["run_id"] for row in get(ann, "/api/runs", limit=200, q="plan-")["runs"]]
    assert len(set(seen)) == 25


def test_pages_hold_every_run_once_newest_first(ann: httpx.Client) -> None:
    seen: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = get(ann, "/api/runs", limit=7, cursor=cursor)
        assert page["total"] == 28
        seen += page["runs"]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert len({row["run_id"] for row in seen}) == len(seen) == 28
    assert [row["updated_at"] for row in seen] == sorted(
        (row["updated_at"] for row in seen), reverse=True
    )


def test_each_filter_narrows(ann: httpx.Client) -> None:
    def names(**query: Any) -> set[str]:
        return {row["run_id"] for row in get(ann, "/api/runs", limit=200, **query)["runs"]}

    assert names(status="waiting_approval") == {"waits"}
    assert names(status=["waiting_approval", "failed"]) >= {"waits"}
    assert names(user_id="u1") == {f"plan-{n:02}" for n in range(1, 25, 3)}
    assert names(q="plan-1") == {f"plan-{n}" for n in range(10, 20)}
    assert names(q="pla") > names(q="plan-1")
    assert "big" in names(since=NOW + 80_000)
    assert "plan-00" not in names(since=NOW + 80_000)
    assert names(until=NOW - 1) == set()
    assert names(agent="nobody") == set()
    assert names(stuck=1) == set()  # what waits for a person is not stuck
    assert names(quarantined=1) == set()


def test_a_stuck_and_a_quarantined_run_are_found_and_counted(
    world: World, ann: httpx.Client
) -> None:
    world.feed(golden("0.1-first-plan", "hangs", NOW - 10**9)[:3])
    world.index.quarantine("hangs", True)
    try:
        stuck = get(ann, "/api/runs", stuck=1)["runs"]
        assert [row["run_id"] for row in stuck] == ["hangs"]
        assert stuck[0]["quarantined"] is True
        assert get(ann, "/api/runs", quarantined=1)["total"] == 1
        stats = get(ann, "/api/stats")
        assert (stats["stuck"], stats["quarantined"]) == (1, 1)
    finally:
        world.index.quarantine("hangs", False)
        world.feed(golden("0.1-first-plan", "hangs", NOW - 10**9))
        world.index.keep_partitions([0])


@pytest.mark.parametrize(
    "query",
    [
        "status=nope", "limit=0", "limit=201", "limit=x", "since=-1", "cursor=abc", "cursor=WzEsIjEvMiJd",
        "agent=a/b", "user_id=..", "stuck=yes", f"q={'x' * 201}", "until=1e9",
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(ann: httpx.Client, query: str) -> None:
    assert error(ann.get(f"/api/runs?{query}"), 400)


# --- one run ---------------------------------------------------------------------------------


def test_a_run_whole(ann: httpx.Client) -> None:
    events = golden("0.1-first-model_loop", "big", NOW + 90_000)
    run = fold(events)
    assert run is not None
    found = get(ann, "/api/runs/big")
    assert found["run"]["status"] == "done"
    assert found["run"]["definition"]["agent"] == run.header.agent
    assert found["run"]["input"]["order"] == {"$int": str(2**70)}
    assert found["outcome"]["complete"] in (True, False)
    assert found["run"]["complete"] == found["outcome"]["complete"]


def test_the_timeline_pages_and_names_calls(ann: httpx.Client) -> None:
    events = golden("0.1-first-model_loop", "big", NOW + 90_000)
    entries: list[dict[str, Any]] = []
    after = 0
    while after is not None:
        page = get(ann, "/api/runs/big/timeline", after=after, limit=10)
        entries += page["entries"]
        after = page["next"]
    assert [entry["version"] for entry in entries] == [event.version for event in events]
    told = {entry["type"]: entry for entry in entries}
    assert told["approval_decided"]["tone"] == "person"
    assert told["action_unknown"]["title"].startswith("pay may or may not have happened")
    assert told["action_succeeded"]["action_id"].startswith("big/")
    assert told["run_finished"]["tone"] == "good"
    assert all(entry["title"] for entry in entries)
    assert get(ann, "/api/runs/big/timeline", after=len(events))["entries"] == []


def test_calls_have_their_attempts_and_questions(ann: httpx.Client) -> None:
    found = {each["action_id"]: each for each in get(ann, "/api/runs/big/actions")["actions"]}
    put = next(each for each in found.values() if each["tool"] == "put")
    assert [each["outcome"] for each in put["attempts_list"]] == ["failed", "succeeded"]
    assert put["attempts_list"][0]["error"]["code"] == "rate_limited"
    pay = next(each for each in found.values() if each["tool"] == "pay")
    assert pay["approval"]["decisions"][0]["decision"] == "modify"
    assert pay["approval"]["original_arguments"] == {"amount": 20}
    assert pay["arguments"] == {"amount": 15}


def test_one_event_whole_and_a_missing_one(ann: httpx.Client) -> None:
    events = golden("0.1-first-model_loop", "big", NOW + 90_000)
    found = get(ann, "/api/runs/big/events/1")
    assert (found["type"], found["hash"]) == ("run_started", events[0].hash)
    assert error(ann.get(f"/api/runs/big/events/{len(events) + 1}"), 404)
    assert error(ann.get("/api/runs/big/events/0"), 400)
    assert error(ann.get("/api/runs/big/events/x"), 400)


def test_an_approver_may_uncover_and_it_is_noted_at_every_level(
    bob: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    ours = logging.getLogger("perdure")
    before = ours.level
    ours.setLevel(logging.CRITICAL)
    try:
        get(bob, "/api/runs/big/events/1", uncover=1)
    finally:
        ours.setLevel(before)
    assert [each.getMessage() for each in caplog.records if each.name == "perdure.audit"] == [
        "audit: bob uncovers event 1 of run big"
    ]


def test_a_run_first_seen_in_the_middle_is_shown_as_far_as_it_is_known(ann: httpx.Client) -> None:
    found = get(ann, "/api/runs/middle")["run"]
    assert (found["incomplete"], found["status"], found["plan"]) == (True, "done", None)
    assert get(ann, "/api/runs/middle/timeline")["entries"][0]["version"] == 5
    assert get(ann, "/api/runs/middle/actions")["incomplete"] is True


def test_an_unknown_run_is_not_found(ann: httpx.Client) -> None:
    for path in ("", "/timeline", "/actions", "/events/1"):
        assert "nosuch" in error(ann.get(f"/api/runs/nosuch{path}"), 404)


# --- people ----------------------------------------------------------------------------------


def test_the_inbox_says_what_may_be_decided_by_whom(ann: httpx.Client, bob: httpx.Client) -> None:
    def may(who: httpx.Client) -> dict[str, bool]:
        found = get(who, "/api/approvals")["approvals"]
        return {each["approval_id"]: each["may_decide"] for each in found}

    assert list(may(ann).items()) == [("r2/a1", True), ("r1/a1", True)]  # the first to expire first
    assert may(bob) == {
        "r2/a1": False,
        "r1/a1": False,
    }  # r2 is bob's own task, r1 is ann's to decide
    page = get(ann, "/api/approvals", limit=1)
    rest = get(ann, "/api/approvals", limit=1, cursor=page["next"])
    assert [page["total"], rest["approvals"][0]["approval_id"], rest["next"]] == [2, "r1/a1", None]
    assert get(ann, "/api/approvals/r1/a1")["open"] is True
    assert get(ann, "/api/approvals", approver="ann", kind="action")["total"] == 2


def test_a_closed_question_is_told_from_its_run(ann: httpx.Client) -> None:
    found = get(ann, "/api/approvals/big/a1")
    assert (found["open"], found["may_decide"], found["approval_id"]) == (False, False, "big/a1")
    assert found["decisions"][0]["decision"] == "modify"
    assert error(ann.get("/api/approvals/big/a9"), 404)


def test_a_decision_is_its_senders_and_bound_to_what_was_shown(
    world: World, ann: httpx.Client
) -> None:
    path = "/api/approvals/r1/a1/decisions"
    sent = ann.post(
        path,
        json={
            "decision": "modify",
            "reason": "less",
            "arguments": {"amount": {"$int": str(2**60)}},
        },
    )
    assert sent.status_code == 202
    made = world.door.decisions[-1]
    assert (made.approver, made.approval_id, made.digest) == ("ann", "r1/a1", "d1")
    assert made.arguments == {"amount": 2**60}
    assert "takes approve" in error(ann.post(path, json={"decision": "extend"}), 409)
    assert "changed" in error(ann.post(path, json={"decision": "approve", "digest": "old"}), 409)
    before = len(world.door.decisions)
    for body in (
        {"decision": "approve", "approver": "bob"},
        {"decision": "approve", "run_id": "r1"},
        {"decision": "approve", "signature": "x"},
        {"decision": "yes"},
        {},
    ):
        assert error(ann.post(path, json=body), 400)
    assert len(world.door.decisions) == before


def test_control_requests_are_in_the_callers_name(world: World, ann: httpx.Client) -> None:
    sent = ann.post(
        "/api/runs/waits/control",
        json={"command": "cancel", "reason": "enough", "compensate": True},
    )
    assert sent.status_code == 202
    made = world.door.controls[-1]
    assert (made.run_id, made.command, made.by, made.compensate) == ("waits", "cancel", "ann", True)
    for body in (
        {"command": "explode"},
        {"command": "pause", "by": "bob"},
        {"command": "pause", "x": 1},
    ):
        assert error(ann.post("/api/runs/waits/control", json=body), 400)


def test_a_task_goes_through_the_door_with_exact_numbers(world: World, ann: httpx.Client) -> None:
    body = {"agent": "demo", "input": {"n": {"$int": "18446744073709551617"}, "e": {"$int_": 1}}}
    assert ann.post("/api/tasks", json=body).json() == {"task_id": "r-made"}
    made = world.door.tasks[-1]
    assert made.input == {"n": 2**64 + 1, "e": {"$int": 1}}
    assert (made.user_id, made.metadata) == ("ann", {})
    ann.post("/api/tasks", json={**body, "user_id": "carl"})
    assert world.door.tasks[-1].metadata == {"submitted_by": "ann"}
    assert "agent" in error(ann.post("/api/tasks", json={"input": 1}), 400)
    twice = ann.post(
        "/api/tasks",
        content=b'{"agent":"a","agent":"b"}',
        headers={"Content-Type": "application/json"},
    )
    assert "twice" in error(twice, 400)
    assert error(ann.post("/api/tasks", json={"agent": "a", "input": {"$int": "1.5"}}), 400)
    assert error(ann.post("/api/tasks", content=b"agent=a"), 415)


def test_a_task_that_no_engine_takes_is_refused_at_once(world: World, ann: httpx.Client) -> None:
    before = len(world.door.tasks)
    ours = ann.post("/api/tasks", json={"agent": "demo", "task_id": "t~1"})
    assert "~ is for ids made by Perdure" in error(ours, 400)
    heavy = ann.post("/api/tasks", json={"agent": "demo", "metadata": {"x": "y" * 16_000}})
    assert "metadata: must be under 16 kB" in error(heavy, 400)
    assert len(world.door.tasks) == before


def test_a_verdict_is_given_or_not_there_yet(world: World, ann: httpx.Client) -> None:
    asked = Verdict(run_id="r1", request_id="q/1", accepted=True, at=1)
    world.door.verdicts["r1", "q/1"] = asked
    assert get(ann, "/api/verdicts/r1/q%2F1", wait=1)["accepted"] is True
    assert error(ann.get("/api/verdicts/r1/other"), 404)
    assert error(ann.get("/api/verdicts/r1/other", params={"wait": 31}), 400)


# --- who may ---------------------------------------------------------------------------------


def test_one_caller_does_not_hold_all_the_waits(
    world: World, ann: httpx.Client, bob: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, over = threading.Semaphore(0), threading.Event()

    def waits(run_id: str, request_id: str, wait: float) -> None:
        if run_id == "slow":
            began.release()
            over.wait(10)

    monkeypatch.setattr(world.door, "verdict", waits)
    asking = [
        threading.Thread(target=ann.get, args=["/api/verdicts/slow/q1?wait=9"])
        for _ in range(writes.WAITS_EACH + 12)
    ]
    for each in asking:
        each.start()
    try:
        assert all(began.acquire(timeout=10) for _ in range(writes.WAITS_EACH))
        assert "ask again" in error(ann.get("/api/verdicts/slow/q1?wait=0"), 404)
        assert error(bob.get("/api/verdicts/r1/q1?wait=9"), 404)
        assert not began.acquire(blocking=False)
    finally:
        over.set()
        for each in asking:
            each.join()


def test_roles(address: str) -> None:
    with client(address, EVE) as eve, client(address, BOB) as bob, client(address, None) as nobody:
        assert get(eve, "/api/me") == {"user": "eve", "roles": ["viewer"], "dev": False}
        assert get(eve, "/api/runs")["total"] >= 28
        decide = ("/api/approvals/r1/a1/decisions", {"decision": "approve"})
        for who, path, body in (
            (eve, *decide),
            (eve, "/api/tasks", {"agent": "a"}),
            (eve, "/api/runs/r1/control", {"command": "pause"}),
            (bob, "/api/tasks", {"agent": "a"}),
        ):
            assert "role" in error(who.post(path, json=body), 403)
        assert "role approver" in error(eve.get("/api/runs/big/events/1?uncover=1"), 403)
        for path in ("/api/me", "/api/runs", "/api/changes", "/api/health", "/api/nothing"):
            assert error(nobody.get(path), 401)
        assert error(nobody.post(decide[0], json=decide[1]), 401)
        wrong = {"Authorization": "Bearer \u00e9".encode()}
        assert error(nobody.get("/api/me", headers=wrong), 401)


def test_a_cookie_signs_in_and_writes_only_from_the_page_itself(world: World, address: str) -> None:
    with client(address, None) as page:
        assert error(page.post("/api/login", json={"token": "wrong"}), 401)
        signed_in = page.post("/api/login", json={"token": ANN})
        cookie = signed_in.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert get(page, "/api/me")["user"] == "ann"
        body = {"agent": "demo"}
        foreign = {"Origin": "https://evil.example"}
        assert error(page.post("/api/tasks", json=body, headers=foreign), 403)
        assert error(
            page.post("/api/tasks", json=body, headers={"Sec-Fetch-Site": "cross-site"}), 403
        )
        own = {"Sec-Fetch-Site": "same-origin"}
        assert page.post("/api/tasks", json=body, headers=own).status_code == 202
        page.post("/api/logout")
        assert error(page.get("/api/me"), 401)


def test_another_hosts_name_is_refused(ann: httpx.Client) -> None:
    assert error(ann.get("/api/me", headers={"Host": "evil.example"}), 400)


def test_a_proxy_with_tls_in_front_on_the_same_machine(tmp_path: Path) -> None:
    world = World(access(tmp_path / "tokens.jsonl"))
    names = frozenset({"127.0.0.1", "runs.example"})
    page = frozenset({"https://runs.example"})
    world.parts = replace(world.parts, hosts=names, origins=page, secure=True)
    with world.served() as address, client(address, None) as me:
        given = {"Host": "runs.example"}
        cookie = me.post("/api/login", json={"token": ANN}, headers=given).headers["set-cookie"]
        assert "Secure" in cookie
        # as a proxy asks that puts its own name for the one that was called
        sent = {"Cookie": cookie.partition(";")[0], "Origin": "https://runs.example"}
        body = {"agent": "demo", "input": "x"}
        assert me.post("/api/tasks", json=body, headers=sent).status_code == 202
        sent["Origin"] = "https://other.example"
        assert error(me.post("/api/tasks", json=body, headers=sent), 403)


def test_it_is_not_ready_before_the_open_questions_are_read(world: World, address: str) -> None:
    world.board.caught_up.clear()
    try:
        with client(address, None) as me:
            assert me.get("/ready").status_code == 503
    finally:
        world.board.caught_up.set()


def test_questions_of_the_longest_ids_have_pages_too(world: World, ann: httpx.Client) -> None:
    for n in (1, 2):
        run_id = f"{n}~~" + "x" * 197
        world.ask(approval_id=f"{run_id}/a{n}", run_id=run_id, expires_at=5 + n, kind="budget")
    try:
        seen = []
        cursor = ""
        while cursor is not None:
            page = get(ann, "/api/approvals", kind="budget", limit=1, cursor=cursor)
            seen += [each["approval_id"][:3] for each in page["approvals"]]
            cursor = page["next"]
        assert seen == ["1~~", "2~~"]
    finally:
        for asked in world.board.questions():
            if asked.kind == "budget":
                world.board.take(topics.PENDING, asked.approval_id.encode(), None)


def test_the_local_user_needs_no_token() -> None:
    world = World(Access(None, local()))
    with world.served() as address, client(address, None) as me:
        assert get(me, "/api/me") == {
            "user": "me", "roles": ["approver", "operator", "viewer"], "dev": True,
        }  # fmt: skip
        me.post("/api/tasks", json={"agent": "demo"})
        assert world.door.tasks[-1].user_id == "anonymous"  # so that the local user may approve


def test_too_many_requests_are_told_to_wait() -> None:
    world = World(Access(None, local()), rate=Rate(per_second=0.001, burst=3))
    with world.served() as address, client(address, None) as me:
        assert [me.get("/live").status_code for _ in range(4)] == [200, 200, 200, 429]
        assert [me.get(f"/{name}").status_code for name in ("", "app.js", "runs/r1")] == [200] * 3


# --- the rest --------------------------------------------------------------------------------


def test_headers_keep_the_page_to_itself(ann: httpx.Client) -> None:
    for path in ("/", "/api/runs", "/api/nothing", "/runs/r1", "/nosuch.js"):
        headers = ann.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_the_pages_files_are_sent_once(ann: httpx.Client) -> None:
    first = ann.get("/app.js")
    assert first.headers["cache-control"] == "no-cache"
    again = ann.get("/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    assert ann.get("/", headers={"If-None-Match": first.headers["etag"]}).status_code == 200


def test_probes_need_no_token(world: World, address: str) -> None:
    with client(address, None) as probe:
        assert probe.get("/live").status_code == 200
        assert probe.get("/ready").status_code == 200
        world.histories.is_ready = False
        assert probe.get("/ready").status_code == 503
        world.histories.is_ready = True
        assert probe.get("/openapi.json").json()["openapi"] == "3.1.0"
        assert error(probe.get("/api/nothing"), 401)


def test_nothing_is_listed_before_the_tables_are_there(world: World, ann: httpx.Client) -> None:
    """Half a list would be taken for the whole, and a page that watches would never hear of the rest."""
    world.histories.is_ready = False
    try:
        for path in ("/api/runs", "/api/runs/model-1", "/api/stats", "/api/changes"):
            found = ann.get(path)
            assert (found.status_code, found.json()["error"]["code"]) == (503, "restoring"), path
    finally:
        world.histories.is_ready = True


def test_health_and_stats(ann: httpx.Client) -> None:
    assert get(ann, "/api/health")["views"] == [{"instance": "here", "partitions": [0]}]
    stats = get(ann, "/api/stats")
    assert len(stats["rates"]) == 60
    assert stats["totals"]["done"] >= 25
    assert set(stats["waiting"]) <= {"action", "handover", "retry", "in_doubt"}


def test_what_another_process_holds_and_cannot_be_asked_is_said_so(
    world: World, ann: httpx.Client
) -> None:
    world.histories.elsewhere["moving"] = None
    assert "another process" in error(ann.get("/api/runs/moving"), 503)
    world.histories.elsewhere["moving"] = "http://127.0.0.1:1"
    assert "another process" in error(ann.get("/api/runs/moving"), 503)
    world.histories.elsewhere.clear()


def test_a_list_is_not_answered_while_its_tables_are_being_read(
    world: World, ann: httpx.Client
) -> None:
    world.histories.is_ready = False
    try:
        for path in ("/api/runs", "/api/agents", "/api/tools", "/api/stats"):
            assert "reads its tables" in error(ann.get(path), 503)
    finally:
        world.histories.is_ready = True


@pytest.mark.parametrize(
    "value",
    [
        SAFE,
        -SAFE,
        SAFE + 1,
        2**63,
        -(2**70),
        True,
        1.5,
        {"$int": "1"},
        {"$int_": 1},
        [{"a": 2**53}],
        "x",
    ],
)
def test_values_come_back_from_a_browser_as_they_went(value: Any) -> None:
    from perdure.streams.views.projections.exact import inward, outward

    sent = outward(value)
    assert inward(sent) == value

    def largest(plain: Any) -> int:
        if isinstance(plain, dict | list):
            return max(
                map(largest, plain.values() if isinstance(plain, dict) else plain), default=0
            )
        return abs(plain) if isinstance(plain, int) else 0

    assert largest(sent) <= SAFE
