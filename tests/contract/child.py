"""Run as a script: makes the calls of the real port that the parent's pickles name, until it dies."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

from perdure.streams.runtime.kafka import ConfluentKafka
from perdure.streams.runtime.settings import RuntimeSettings

PLAIN = (type(None), bool, int, float, str, bytes, list, tuple, dict, set)


def main() -> None:
    told = json.loads(sys.argv[1])
    kafka = ConfluentKafka(RuntimeSettings(data_dir=Path("unused"), instance_id="contract", **told))
    objects: list[Any] = [kafka]
    called_back: list[tuple[int, str, tuple[Any, ...]]] = []
    lock = threading.Lock()  # the plain producer calls back from its own thread

    def note(number: int, name: str, given: tuple[Any, ...]) -> None:
        with lock:
            called_back.append((number, name, given))

    class Listener:
        def __init__(self, number: int) -> None:
            self._number = number

        def __getattr__(self, name: str) -> Any:
            return lambda *given: note(self._number, name, given)

    def meant(kind: str, value: Any) -> Any:
        if kind == "object":
            return objects[value]
        if kind == "listener":
            return Listener(value)
        if kind == "callback":
            return lambda *given: note(value, "", given)
        return value

    while True:
        try:
            target, method, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            result = getattr(objects[target], method)(*(meant(*a) for a in arguments))
            kind = "value"
            if not isinstance(result, PLAIN):
                objects.append(result)
                kind, result = "object", len(objects) - 1
        except Exception as e:
            kind, result = "raised", e
        with lock:
            answer = pickle.dumps((list(called_back), kind, result))
            called_back.clear()
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
