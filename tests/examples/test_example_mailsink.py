"""The mail sink: Python's own SMTP client talks to it over the loopback."""

from __future__ import annotations

import json
import smtplib
import socket
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
from refunds_example import EXAMPLE, load, process

mailsink = load(EXAMPLE / "mailsink.py")


def mail(key: str = "r-1/3/aa", body: str = "Hello\n.\n..two\nGrüße\n") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = "shop@example.org", "carla@example.org"
    message["Subject"] = "Refund für A-1001"
    message["Message-ID"] = "<m-1@example.org>"
    message["X-Idempotency-Key"] = key
    message.set_content(body)
    return message


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    path = tmp_path / "mails.jsonl"
    with process("mailsink.py", "--mails", str(path), "--port", "0") as (child, said):
        yield said["port"], path
        child.terminate()
        assert child.wait(5) == 0


def test_a_mail_is_in_the_file_when_it_is_acknowledged(sink: tuple[int, Path]) -> None:
    port, path = sink
    with smtplib.SMTP("127.0.0.1", port) as server:
        server.send_message(mail())
        (kept,) = mailsink.read_mails(path)
        server.send_message(mail("r-2/3/bb"))
    assert kept.pop("received_at") > 0
    assert kept == {
        "key": "r-1/3/aa",
        "sender": "shop@example.org",
        "recipients": ["carla@example.org"],
        "subject": "Refund für A-1001",
        "body": "Hello\n.\n..two\nGrüße\n",
        "message_id": "<m-1@example.org>",
    }
    assert len(mailsink.read_mails(path)) == 2


def test_commands_out_of_order_are_answered_and_keep_nothing(sink: tuple[int, Path]) -> None:
    port, path = sink
    with smtplib.SMTP("127.0.0.1", port) as server:
        assert server.helo()[0] == 250
        assert server.docmd("NOOP")[0] == 250
        assert server.docmd("VRFY x")[0] == 502
        assert server.docmd("DATA")[0] == 503
        assert server.docmd("RCPT TO:<a@b>")[0] == 503
        assert server.docmd("MAIL FROM:<a@b>")[0] == 250
        assert server.docmd("RCPT TO:<nobody>")[0] == 550
        assert server.docmd("RCPT TO:<c@d>")[0] == 250
        assert server.rset()[0] == 250
        assert server.docmd("DATA")[0] == 503
    assert mailsink.read_mails(path) == []


def test_a_mail_broken_off_is_not_kept(sink: tuple[int, Path]) -> None:
    port, path = sink
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nSubject: half\r\n\r\nhal")
    with smtplib.SMTP("127.0.0.1", port) as server:
        server.send_message(mail())
    assert [kept["key"] for kept in mailsink.read_mails(path)] == ["r-1/3/aa"]


def test_half_a_line_left_by_a_kill_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "mails.jsonl"
    path.write_text(json.dumps({"key": "r-1/3/aa"}) + '\n{"key": "r-2')
    assert [kept["key"] for kept in mailsink.read_mails(path)] == ["r-1/3/aa"]
    file = mailsink.MailFile(path)
    file.add("a@b", ["c@d"], bytes(mail("r-3/3/cc")))
    file.close()
    assert [kept["key"] for kept in mailsink.read_mails(path)] == ["r-1/3/aa", "r-3/3/cc"]


def test_look_for_mail_takes_a_run_an_action_or_a_key(tmp_path: Path) -> None:
    path = tmp_path / "mails.jsonl"
    assert not mailsink.look_for_mail(path, "r-1")
    path.write_text(json.dumps({"key": "r-1/3/aa"}) + "\n")
    for wanted in ("r-1", "r-1/3", "r-1/3/aa"):
        assert mailsink.look_for_mail(path, wanted)
    for other in ("r", "r-10", "r-1/30", "r-1/3/a"):
        assert not mailsink.look_for_mail(path, other)
