"""Runs submitted at a steady rate, all tools of the table in each, and what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from .deployed import Site, plan_of
from .judge import Person, check_runs
from .points import TOOLS


class Load:
    """Call `step` in a loop; `settle` when no more is to come."""

    def __init__(self, site: Site, rate: float, name: str = "run", slow: float = 0.0) -> None:
        self.site = site
        self.person = Person(site)
        self.submitted: list[str] = []
        self._rate = rate
        self._name = name
        self._slow = slow
        self._began = time.monotonic()
        self._done: set[str] = set()
        self._seen = 0
        self._last_end = self._began
        self.longest_silence = 0.0
        """Seconds without a run that ended, while some were under way."""

    def step(self) -> None:
        due = int((time.monotonic() - self._began) * self._rate)
        tasks = []
        while len(self.submitted) < due:
            run_id = f"{self._name}-{len(self.submitted)}"
            tasks.append(plan_of(run_id, *TOOLS, slow=self._slow))
            self.submitted.append(run_id)
        if tasks:
            self.site.submit(*tasks)
        self.look()

    def look(self) -> None:
        self.site.watch.pump(0.02)
        self.person.look()
        outcomes = self.site.watch.by_topic["agent.outcomes"]
        for seen in outcomes[self._seen :]:
            if seen.value is not None:
                self._done.add(seen.key)
        now = time.monotonic()
        if len(outcomes) > self._seen or len(self._done) >= len(self.submitted):
            self.longest_silence = max(self.longest_silence, now - self._last_end)
            self._last_end = now
        self._seen = len(outcomes)

    @property
    def ended(self) -> int:
        return len(self._done)

    def settle(self, seconds: float, also: Callable[[], None] = lambda: None) -> None:
        """Wait for every outcome; then judge all runs and count all effects."""

        def all_ended() -> bool:
            also()
            self.look()
            return set(self.submitted) <= self._done

        left = [run for run in self.submitted if run not in self._done]
        self.site.until(all_ended, f"all of {len(self.submitted)} runs ended ({left[:5]})", seconds)
        self.judge()

    def judge(self) -> None:
        service, watch = self.site.service, self.site.watch
        faults = []
        for run_id in self.submitted:
            outcome = watch.outcome(run_id)
            assert outcome is not None
            if (outcome["status"], outcome["complete"]) != ("done", True):
                faults.append(f"{run_id}: {outcome['text']}")
            for tool in TOOLS:
                found = service.count(tool, run_id)
                if found < 1 or (found > 1 and tool != "look"):
                    faults.append(f"{run_id}: {tool} has {found} effects")
        assert not faults, "\n".join([*faults[:20], self.site.logs()])
        check_runs(self.site, self.submitted)
