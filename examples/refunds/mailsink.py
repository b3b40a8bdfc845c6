"""A mail server that delivers nothing: it keeps every mail as a line of a file.

A mail is on the disk before it is acknowledged. `read_mails` reads the file, also while the sink
runs; `look_for_mail` is what a person does who is asked whether a mail in doubt went out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
import time
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

KEY_HEADER = "X-Idempotency-Key"
MAX_MAIL = 10_000_000


def read_mails(path: str | Path) -> list[dict[str, Any]]:
    """All mails kept: key, sender, recipients, subject, body, message_id, received_at (ms)."""
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    whole = raw[: raw.rfind(b"\n") + 1]  # a line being written is not acknowledged yet
    return [json.loads(line) for line in whole.splitlines()]


def look_for_mail(path: str | Path, wanted: str) -> bool:
    """Whether a mail of this run (`r-1`), action (`r-1/3`) or idempotency key was taken."""
    return any(
        mail["key"] == wanted or mail["key"].startswith(f"{wanted}/") for mail in read_mails(path)
    )


class MailFile:
    """The only owner of the file of mails."""

    def __init__(self, path: str | Path) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a+b")  # noqa: SIM115 - closed by close()
        self._file.seek(0)
        whole = self._file.read().rfind(b"\n") + 1
        self._file.truncate(whole)  # half a line was never acknowledged

    def add(self, sender: str, recipients: list[str], content: bytes) -> None:
        message = message_from_bytes(content.replace(b"\r\n", b"\n"), policy=policy.default)
        body = message.get_body(("plain",))
        record = {
            "key": str(message.get(KEY_HEADER, "")),
            "sender": sender,
            "recipients": recipients,
            "subject": str(message.get("Subject", "")),
            "body": body.get_content() if body is not None else "",
            "message_id": str(message.get("Message-ID", "")),
            "received_at": int(time.time() * 1000),
        }
        self._file.write(json.dumps(record).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class Sink:
    """The SMTP side: HELO, EHLO, MAIL, RCPT, DATA, RSET, NOOP, QUIT."""

    def __init__(self, mails: MailFile) -> None:
        self._mails = mails
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._talk(reader, writer)
        except (ConnectionError, ValueError):
            pass  # gone, or a line longer than any mail program sends
        finally:
            self._open.discard(writer)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender: str | None = None
        recipients: list[str] = []
        writer.write(b"220 sink ready\r\n")
        while line := await reader.readline():
            text = line.decode("utf-8", "replace").strip()
            verb = text[:4].upper()
            answer = "250 OK"
            if verb == "EHLO":
                answer = f"250-sink\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 SIZE {MAX_MAIL}"
            elif verb == "MAIL":
                sender, recipients = _address(text), []
            elif verb == "RCPT" and sender is None:
                answer = "503 MAIL comes first"
            elif verb == "RCPT" and "@" not in _address(text):
                answer = "550 no such mailbox"
            elif verb == "RCPT":
                recipients.append(_address(text))
            elif verb == "DATA" and not recipients:
                answer = "503 RCPT comes first"
            elif verb == "DATA":
                writer.write(b"354 end with a line of one dot\r\n")
                content = await _content(reader)
                if content is None:
                    return
                if len(content) <= MAX_MAIL:
                    self._mails.add(sender or "", recipients, content)
                else:
                    answer = "552 too large"
                sender, recipients = None, []
            elif verb == "RSET":
                sender, recipients = None, []
            elif verb == "QUIT":
                writer.write(b"221 bye\r\n")
                await writer.drain()
                return
            elif verb not in ("HELO", "NOOP"):
                answer = "502 not understood"
            writer.write(f"{answer}\r\n".encode())
            await writer.drain()


def _address(line: str) -> str:
    """The address in `MAIL FROM:<a@b> BODY=8BITMIME`."""
    return line.partition("<")[2].partition(">")[0]


async def _content(reader: asyncio.StreamReader) -> bytes | None:
    """A mail without the dots of the protocol; None: the sender went away in the middle."""
    lines: list[bytes] = []
    while (line := await reader.readline()) not in (b".\r\n", b".\n"):
        if not line.endswith(b"\n"):
            return None
        lines.append(line.removeprefix(b"."))
    return b"".join(lines)


async def _run(options: argparse.Namespace) -> None:
    mails = MailFile(options.mails)
    sink = Sink(mails)
    try:
        await sink.start(options.port)
    except OSError as error:
        sys.exit(f"port {options.port} can't be used ({error.strerror}): try --port 0")
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    if options.end_with_stdin:

        def watch() -> None:
            while os.read(0, 1024):  # not sys.stdin: its lock would be held at exit
                pass
            loop.call_soon_threadsafe(over.set)

        threading.Thread(target=watch, daemon=True).start()
    address = f"127.0.0.1:{sink.port}"
    print(json.dumps({"role": "mail", "port": sink.port, "address": address}), flush=True)
    await over.wait()
    await sink.stop()
    mails.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="The mail server of the refunds example.")
    parser.add_argument("--mails", default=".perdure/refunds/mails.jsonl", help="file of mails")
    parser.add_argument("--port", type=int, default=2525, help="0 takes any free port")
    parser.add_argument("--end-with-stdin", action="store_true", help="end when stdin is closed")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
