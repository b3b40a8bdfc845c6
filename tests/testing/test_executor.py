"""The simulated executor: a ``def`` tool that waits or is held up while the world goes on."""

from __future__ import annotations

from collections.abc import Callable

from perdure.testing.executor import SimExecutor


class Process:
    """What an executor needs of a process; events run when `until` is called."""

    alive = True

    def __init__(self) -> None:
        self.events: list[Callable[[], None]] = []
        self.waited = 0

    def wake_loop(self) -> None: ...

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.events.append(action)

    def monotonic(self) -> float:
        return 0.0

    def jitter(self) -> float:
        return 0.0

    def until(self, condition: Callable[[], bool]) -> None:
        self.waited += 1

    def odd(self, text: str) -> None:
        raise AssertionError(text)


def test_a_tool_that_is_held_up_while_another_runs_still_waits_for_what_it_spawns() -> None:
    process = Process()
    executor = SimExecutor(process)

    async def job() -> None: ...

    def held_up() -> None:
        executor.answer_after = 5.0
        with executor.aside():
            executor.spawn(job)  # not the thread's
            assert process.waited == 0
            process.events.pop(0)()  # the other tool, from its beginning to its end
        assert executor.answer_after == 5.0
        executor.spawn(job)
        assert process.waited == 1

    def other() -> None:
        executor.answer_after = 1.0

    for work in (held_up, other):
        executor.in_thread("tools", 2, work, lambda: None)
    process.events.pop(0)()
    assert process.waited == 1
    executor.close()
