"""The providers by name; each is made when the first call needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .function import PythonFunction
from .provider import ModelError, Provider
from .scripted import Scripted


def _openai() -> Provider:
    from .openai import OpenAI  # half a second of imports, only where it is used

    return OpenAI()


MAKERS: Mapping[str, Callable[[], Provider]] = {
    "scripted": Scripted,
    "python": PythonFunction,
    "openai": _openai,
}


class Providers:
    """What a worker of the `models` queue can reach."""

    def __init__(self, makers: Mapping[str, Callable[[], Provider]] = MAKERS) -> None:
        self._makers = makers
        self._made: dict[str, Provider] = {}

    def get(self, name: str) -> Provider:
        """Raises `ModelError` for a provider that is not there."""
        found = self._made.get(name)
        if found is None:
            maker = self._makers.get(name)
            if maker is None:
                raise ModelError(
                    "model_unavailable",
                    "no_such_provider",
                    f"there is no model provider {name!r}; there is {', '.join(self._makers)}",
                )
            found = self._made[name] = maker()
        return found
