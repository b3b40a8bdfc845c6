"""How fast the page and its view are: `python -m tests.browser.figures [--runs N] [--more N] [--json]`.

Starts an embedded Kafka and `perdure views`, writes recorded histories as an engine writes them, and
measures: the view's catching up and memory, a list page's answer over HTTP, a browser's first sight of
the list, and a long way down through it. Aims: p99 of a list page under 50 ms and first content under
1 s with 10,000 runs. Figures, not a gate: what else the machine does is printed with them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from confluent_kafka import Producer
from perdure.schemas import codec, topics
from perdure.schemas.records import RunEvent
from perdure.streams.cluster.broker import EmbeddedKafka
from perdure.streams.cluster.topics import ensure_topics
from perdure.streams.core.events import hash_of
from perdure.streams.views.faust_app import TABLES
from playwright.sync_api import Page, sync_playwright

from tests.views.histories import golden

from .conftest import chromium, context_of

PARTITIONS: Final = 2
STORIES: Final = [
    ("0.1-first-plan", 40), ("0.1-first-model_loop", 15), ("0.1-first-handover", 15),
    ("0.1-first-expired", 20), ("0.1-first-doubt_and_cancel", 10),
]  # fmt: skip
BEGINNING: Final = 4
"""Events of each further run: enough to be listed, few enough that writing them takes minutes."""
AGENTS, USERS, TENANTS = ("refunds", "support", "invoices"), 500, ("north", "south", "west")
WORDS: Final = [
    "refund", "order", "invoice", "customer", "delivery", "address", "broken", "cup", "vase", "late",
    "wrong", "colour", "size", "return", "check", "contract", "supplier", "subscription", "cancel",
    "letter", "mail", "booking", "transfer", "report", "weekly", "open", "amount",
]  # fmt: skip
JUMPS: Final = (
    "window.jumps = 0; new PerformanceObserver(list => list.getEntries().forEach(e => "
    "{ window.jumps += e.value })).observe({type: 'layout-shift', buffered: true});"
)
FIRST_ROW: Final = (
    "new MutationObserver(() => { if (!window.firstRow && document.querySelector('.rows .run-row')) "
    "window.firstRow = performance.now() }).observe(document, {childList: true, subtree: true});"
)


class Histories:
    """Recorded runs under other names: each with a goal of its own, and a chain of hashes that holds."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)
        self._known = {name: golden(name) for name, _ in STORIES}

    def run(self, number: int, at: int, most: int | None = None) -> list[RunEvent]:
        chance = self._chance
        (name,) = chance.choices([n for n, _ in STORIES], [weight for _, weight in STORIES])
        recorded = self._known[name][:most]
        own = {
            "run_id": f"run-{number:06}", "agent": chance.choice(AGENTS),
            "user_id": f"user-{chance.randrange(USERS)}", "tenant": chance.choice(TENANTS),
        }  # fmt: skip
        moved, before, made = at - recorded[0].at, "", []
        for event in recorded:
            again = msgspec.structs.replace(
                event, at=event.at + moved, previous_hash=before, hash="", **own
            )
            if again.type == "run_started":
                goal = " ".join(chance.choices(WORDS, k=10)) + f" A-{number}"
                again.data = {**again.data, "input": goal}
            again.hash = before = hash_of(again)
            made.append(again)
        return made


class Writer:
    """agent.events, in transactions as an engine's."""

    def __init__(self, servers: str) -> None:
        ensure_topics(servers, "", PARTITIONS, processors=(*topics.PROCESSORS, *TABLES))
        self.events = 0
        self._producer = Producer(
            {
                "bootstrap.servers": servers, "transactional.id": "figures", "linger.ms": 20,
                "partitioner": "murmur2_random", "compression.type": "lz4",
                "queue.buffering.max.messages": 500_000,
            }
        )  # fmt: skip
        self._producer.init_transactions(30)

    def write(self, runs: Iterable[list[RunEvent]]) -> None:
        self._producer.begin_transaction()
        for n, events in enumerate(runs, 1):
            for event in events:
                self._producer.produce(topics.EVENTS, codec.encode(event), event.run_id)
                self._producer.poll(0)
            self.events += len(events)
            if n % 200 == 0:
                self._producer.commit_transaction(60)
                self._producer.begin_transaction()
        self._producer.commit_transaction(60)


class View:
    """`perdure views` as a process of its own."""

    def __init__(self, servers: str, directory: Path) -> None:
        command = [sys.executable, "-m", "perdure", "views", "--dev", "--port", "0"]
        command += ["--bootstrap-servers", servers, "--data-dir", str(directory)]
        command += ["--partitions", str(PARTITIONS), "--instance-id", "figures"]
        said = directory.with_suffix(".log")
        with said.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log)
        while not (found := re.search(r"serving http://127\.0\.0\.1:(\d+)", said.read_text())):
            assert self.process.poll() is None, said.read_text()
            time.sleep(0.05)
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while self.status("/ready") != 200:
            time.sleep(0.1)

    def ask(self, path: str) -> tuple[int, bytes, float]:
        """Status, body, milliseconds. Who asks too often is told to wait a little, and does."""
        while True:
            begun = time.perf_counter()
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            body = answer.read()
            if answer.status != 429:
                return answer.status, body, (time.perf_counter() - begun) * 1000
            time.sleep(0.2)

    def status(self, path: str) -> int:
        return self.ask(path)[0]

    def json(self, path: str) -> Any:
        status, body, _ = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def events(self) -> int:
        found = re.search(rb"^perdure_views_events_total (\S+)", self.ask("/metrics")[1], re.M)
        return 0 if found is None else int(float(found[1]))

    def memory(self) -> float:
        """MB of resident memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1000

    def catches_up(self, events: int) -> dict[str, float]:
        """Until it has projected so many events since it started."""
        begun, before = time.monotonic(), self.events()
        while self.events() < events:
            assert self.process.poll() is None, "the view has ended"
            time.sleep(0.2)
        seconds = time.monotonic() - begun
        rate = (events - before) / seconds if seconds else 0.0
        return {"events": events, "seconds": round(seconds, 1), "events_per_second": round(rate)}

    def stop(self) -> None:
        self._connection.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def list_pages(view: View, times: int) -> dict[str, dict[str, float]]:
    """What a list page's answer takes, by what is asked for: ms at p50 and p99."""
    chance, now = random.Random(3), int(time.time() * 1000)
    asked: dict[str, Any] = {
        "no filter": dict,
        "100 a page": lambda: {"limit": 100},
        "status": lambda: {"status": chance.choice(["done", "failed", "running"])},
        "agent and status": lambda: {"agent": chance.choice(AGENTS), "status": "failed"},
        "user": lambda: {"user_id": f"user-{chance.randrange(USERS)}"},
        "tenant and status": lambda: {"tenant": chance.choice(TENANTS), "status": "done"},
        "since": lambda: {"since": now - chance.randrange(3_600_000)},
        "id": lambda: {"q": f"run-{chance.randrange(1000):04}"},
        "a frequent word": lambda: {"q": chance.choice(WORDS)},
        "two words": lambda: {"q": " ".join(chance.sample(WORDS, 2))},
        "a rare word": lambda: {"q": f"a-{chance.randrange(10_000)}"},
        "a word nobody wrote": lambda: {"q": "zzzz"},
    }
    found = {}
    for name, query in asked.items():
        took = [view.ask(f"/api/runs?{urlencode(query())}") for _ in range(times)]
        assert {status for status, _, _ in took} == {200}, name
        found[name] = spread([ms for _, _, ms in took])
    deep, cursor = [], ""
    for _ in range(times):  # as far down as that leads
        _, body, ms = view.ask(f"/api/runs?{urlencode({'limit': 100, 'cursor': cursor})}")
        deep.append(ms)
        cursor = json.loads(body)["next"] or ""
    found["page after page"] = spread(deep)
    return found


def spread(took: list[float]) -> dict[str, float]:
    took = sorted(took)
    return {
        "p50": round(statistics.median(took), 1),
        "p99": round(took[min(len(took) - 1, int(len(took) * 0.99))], 1),
        "max": round(took[-1], 1),
    }


@contextmanager
def fresh_page(browser: Any) -> Iterator[Page]:
    """A browser that has never been here: nothing is kept from an earlier sight."""
    context = context_of(browser, 1280, 800, dark=False)
    page = context.new_page()
    page.add_init_script(JUMPS + FIRST_ROW)
    yield page
    context.close()


def first_content(browser: Any, url: str, times: int = 7) -> dict[str, float]:
    """Milliseconds from the navigation's start to the first row of the list, by the browser's clock."""
    took = []
    for _ in range(times):
        with fresh_page(browser) as page:
            page.goto(url, wait_until="commit")
            page.locator(".rows .run-row").first.wait_for()
            took.append(float(page.evaluate("window.firstRow")))
    return {"best": round(min(took)), "median": round(statistics.median(took))}


def long_way_down(browser: Any, url: str, turns: int = 250) -> dict[str, float]:
    """The wheel turned again and again, a screen and a half each: does it jump, does it stay small?"""
    with fresh_page(browser) as page:
        page.goto(url)
        page.locator(".rows .run-row").first.wait_for()
        page.mouse.move(640, 500)
        begun = time.perf_counter()
        for _ in range(turns):
            page.mouse.wheel(0, 1200)
            page.evaluate("() => new Promise(requestAnimationFrame)")
        took = (time.perf_counter() - begun) * 1000
        page.wait_for_timeout(300)
        last = page.locator(".run-row[aria-rowindex]").last.get_attribute("aria-rowindex")
        return {
            "rows_passed": int(last or 0),
            "elements": page.locator(".rows .run-row").count(),
            "turn_ms": round(took / turns),
            "layout_shift": round(float(page.evaluate("window.jumps")), 4),
        }


def measure(view: View, browser: Any, times: int) -> dict[str, Any]:
    lists = list_pages(view, times)
    return {
        "runs": view.json("/api/runs?limit=1")["total"],
        "memory_mb": round(view.memory()),
        "list_pages_ms": lists,
        "worst_p99_ms": max(each["p99"] for each in lists.values()),
        "first_content_ms": first_content(browser, view.url),
        "long_way_down": long_way_down(browser, view.url),
        "load_average": round(os.getloadavg()[0], 1),
    }


def told(word: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {word}", file=sys.stderr, flush=True)


def figures(runs: int, more: int, times: int, directory: Path) -> Iterator[dict[str, Any]]:
    histories, now = Histories(), int(time.time() * 1000)
    with EmbeddedKafka(directory / "kafka", port=0) as kafka, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        writer = Writer(kafka.bootstrap_servers)
        told(f"writing {runs:,} runs, whole")
        writer.write(histories.run(n, now - 3_600_000 + n * 100) for n in range(runs))
        yield _seen(kafka.bootstrap_servers, directory, writer.events, browser, times)
        if more:
            already = writer.events
            told(f"writing {more:,} more, their beginnings")
            writer.write(
                histories.run(n, now - 1_800_000 + n, BEGINNING) for n in range(runs, runs + more)
            )
            new = writer.events - already
            yield _seen(kafka.bootstrap_servers, directory, new, browser, times)
        browser.close()


def _seen(servers: str, directory: Path, new: int, browser: Any, times: int) -> dict[str, Any]:
    """A view started on what it has already and so many new events."""
    told(f"the view starts, {new:,} events behind")
    view = View(servers, directory / "views")
    try:
        caught = view.catches_up(new)
        told("measuring")
        return {"catching_up": caught, **measure(view, browser, times)}
    finally:
        view.stop()


def shown(found: dict[str, Any]) -> str:
    lines = [f"{found['runs']:,} runs (load average {found['load_average']})"]
    caught, content, way = found["catching_up"], found["first_content_ms"], found["long_way_down"]
    lines += [
        f"  catching up    {caught['events']:,} events in {caught['seconds']} s: {caught['events_per_second']:,} events/s",
        f"  memory         {found['memory_mb']} MB",
        f"  first content  best {content['best']} ms, median {content['median']} ms",
        f"  a long way     {way['rows_passed']:,} rows, {way['elements']} elements, {way['turn_ms']} ms a turn of the wheel, "
        f"layout shift {way['layout_shift']}",
        f"  a list page    worst p99 {found['worst_p99_ms']} ms",
    ]
    lines += [
        f"    {name:22} p50 {each['p50']:6.1f}   p99 {each['p99']:6.1f}   max {each['max']:6.1f}"
        for name, each in found["list_pages_ms"].items()
    ]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=10_000)
    options.add_argument("--more", type=int, default=90_000)
    options.add_argument(
        "--times", type=int, default=200, help="list pages asked for, of each kind"
    )
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-figures-") as directory:
        for found in figures(asked.runs, asked.more, asked.times, Path(directory)):
            print(json.dumps(found) if asked.json else shown(found), flush=True)


if __name__ == "__main__":
    main()
