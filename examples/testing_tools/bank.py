"""A fake of the bank: what it did is what counts."""

from __future__ import annotations

from typing import Any

from perdure.testing import Network


class Bank:
    """``network`` carries requests here; one that is on its way lands even if its sender dies."""

    def __init__(self, network: Network | None = None) -> None:
        self.network = network or Network()
        self.bookings: dict[str, list[float]] = {}

    # --- what the real bank does ---------------------------------------------------------------

    async def refund(self, reference: str, amount: float) -> dict[str, Any]:
        """A second refund of one reference is the first one."""
        return await self.network.send(lambda: self._book(reference, amount, once=True))

    async def transfer(self, reference: str, amount: float) -> dict[str, Any]:
        """Every request is a transfer."""
        return await self.network.send(lambda: self._book(reference, amount, once=False))

    def letter(self, reference: str) -> None:
        """Prints and posts a letter; nobody can say later whether it did."""
        self.network.call(lambda: self._book(reference, 0.0, once=False))

    def find(self, reference: str) -> dict[str, Any] | None:
        booked = self.bookings.get(reference)
        return None if booked is None else {"reference": reference, "amount": booked[0]}

    def _book(self, reference: str, amount: float, *, once: bool) -> dict[str, Any]:
        booked = self.bookings.setdefault(reference, [])
        if not (once and booked):
            booked.append(amount)
        return {"reference": reference, "amount": booked[0]}

    # --- what a test asks it -------------------------------------------------------------------

    def count(self) -> int:
        return sum(len(booked) for booked in self.bookings.values())

    def clear(self) -> None:
        self.bookings.clear()
