"""Commands for people who are asked: look at the questions, decide."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import console
from .options import (
    Bootstrap,
    DataDir,
    Follow,
    Json,
    Person,
    Prefix,
    Reason,
    Timeout,
    Uncover,
    flags,
)

app = typer.Typer()

ApprovalId = Annotated[
    str, typer.Argument(metavar="APPROVAL", help="the question's id, such as refund-7/a1")
]
Digest = Annotated[
    str | None,
    typer.Option("--digest", help="what was shown (taken from the open question if left out)"),
]
Arguments = Annotated[
    str | None, typer.Option("--arguments", metavar="JSON", help="the new arguments, with modify")
]
Answer = Annotated[
    str | None,
    typer.Option(
        "--answer", metavar="TEXT|JSON", help="with answer and mark_done: the answer or the result"
    ),
]


@app.command()
def pending(
    follow: Follow = False,
    uncover: Uncover = False,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show what waits for a person, the most urgent first.

    Example: perdure pending --follow
    """
    from . import pending as body

    made = console.connected(
        **flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    )
    console.guarded(lambda: body.pending(made, follow=follow, uncover=uncover, as_json=as_json))


def _decide(
    approval: str, decision: str, approver: str | None, timeout: float, as_json: bool,
    connection: dict[str, Any], **content: Any,
) -> None:  # fmt: skip
    from . import deciding

    def work() -> None:
        made = deciding.decision_of(approval, decision, approver, **content)
        deciding.decide(console.connected(**connection), made, timeout, as_json)

    console.guarded(work)


@app.command()
def approve(
    approval: Annotated[
        str | None,
        typer.Argument(metavar="[APPROVAL]", help="the question's id; left out: a dialogue"),
    ] = None,
    approver: Person = None,
    reason: Reason = None,
    digest: Digest = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Approve exactly what the question shows. Without an id: list, pick, look, decide.

    Example: perdure approve refund-7/a1 --as ann
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    if approval is not None:
        _decide(
            approval, "approve", approver, timeout, as_json, where, reason=reason, digest=digest
        )
        return
    from . import dialogue

    dialogue.check_terminal()
    console.guarded(lambda: dialogue.talk(console.connected(**where), approver, timeout))


@app.command()
def reject(
    approval: ApprovalId,
    reason: Reason = None,
    approver: Person = None,
    digest: Digest = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Reject what the question asks for; the agent is told why.

    Example: perdure reject refund-7/a1 --reason "not our order"
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    _decide(approval, "reject", approver, timeout, as_json, where, reason=reason, digest=digest)


@app.command()
def modify(
    approval: ApprovalId,
    arguments: Arguments = None,
    reason: Reason = None,
    approver: Person = None,
    digest: Digest = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Approve with other arguments.

    Example: perdure modify refund-7/a1 --arguments '{"order_id": "A-1", "amount": 90}' --reason "fee kept"
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    _decide(
        approval, "modify", approver, timeout, as_json, where,
        arguments=arguments, reason=reason, digest=digest,
    )  # fmt: skip


@app.command()
def answer(
    approval: ApprovalId,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="the answer, as a text")
    ] = None,
    answer: Answer = None,
    reason: Reason = None,
    approver: Person = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Answer what an agent asks, or give the result of an action that was handed over.

    Example: perdure answer refund-7/a2 "the blue one"
    """
    if (text is None) == (answer is None):
        console.leave(console.USAGE, "give the answer as a text, or --answer with JSON")
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    _decide(
        approval, "answer", approver, timeout, as_json, where,
        text=text, answer=answer, reason=reason,
    )  # fmt: skip


@app.command()
def decide(
    approval: ApprovalId,
    decision: Annotated[
        str,
        typer.Argument(
            metavar="DECISION",
            help="approve, modify, reject, answer, retry, mark_done, mark_not_done, extend or cancel_run",
        ),
    ],
    approver: Person = None,
    reason: Reason = None,
    arguments: Arguments = None,
    answer: Answer = None,
    steps: Annotated[int | None, typer.Option("--steps", min=0, help="with extend")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", min=0, help="with extend")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="with extend")] = None,
    cost: Annotated[float | None, typer.Option("--cost", min=0, help="with extend")] = None,
    digest: Digest = None,
    timeout: Timeout = 30.0,
    bootstrap_servers: Bootstrap = None,
    topic_prefix: Prefix = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Give any decision on a question.

    Example: perdure decide refund-7/a2 mark_done --answer '{"sent": true}' --reason "seen in the outbox"
    """
    where = flags(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, data_dir=data_dir)
    budget = flags(steps=steps, tokens=tokens, seconds=seconds, cost=cost)
    _decide(
        approval, decision, approver, timeout, as_json, where,
        reason=reason, arguments=arguments, answer=answer, digest=digest, budget=budget or None,
    )  # fmt: skip
