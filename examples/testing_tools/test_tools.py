"""Each tool, with its worker killed at every point: does it keep what it declares?

Run it: ``pytest`` in this directory. No Kafka is needed.
"""

from __future__ import annotations

import pytest
import tools
from bank import Bank

from perdure import ToolContext, tool
from perdure.testing import Crashes


@pytest.fixture
def bank(crashes: Crashes, monkeypatch: pytest.MonkeyPatch) -> Bank:
    """A fake whose requests may still be on their way when the worker dies."""
    made = Bank(crashes.network)
    monkeypatch.setattr(tools, "bank", made)
    return made


def test_a_refund_happens_once(crashes: Crashes, bank: Bank) -> None:
    report = crashes(
        tools.refund, {"order_id": "7", "amount": 5.0}, effects=bank.count, reset=bank.clear
    )
    report.assert_effects(exactly=1)


def test_a_transfer_happens_once(crashes: Crashes, bank: Bank) -> None:
    report = crashes(
        tools.transfer, {"account": "A1", "amount": 5.0}, effects=bank.count, reset=bank.clear
    )
    report.assert_effects(exactly=1)


def test_a_letter_is_never_posted_twice(crashes: Crashes, bank: Bank) -> None:
    report = crashes(
        tools.letter, {"order_id": "7"}, effects=bank.count, reset=bank.clear, then=["restart"]
    )
    report.assert_effects(at_most=1)
    assert "in_doubt" in {cell.status for cell in report.cells}  # then a person is asked


def test_a_promise_that_is_not_kept_is_found_out(crashes: Crashes, bank: Bank) -> None:
    """What declares `idempotent` and isn't."""

    @tool("bank.transfer", effect="idempotent", timeout_seconds=5)
    async def careless(context: ToolContext, amount: float) -> None:
        """Transfer money."""
        await bank.transfer(context.idempotency_key, amount)

    report = crashes(
        careless, {"amount": 5.0}, effects=bank.count, reset=bank.clear, then=["restart"]
    )
    with pytest.raises(AssertionError, match="expected exactly 1"):
        report.assert_effects()
