"""The shop's orders: a SQLite file, the same at every build."""

from __future__ import annotations

import argparse
import sqlite3
from pathlib import Path
from typing import Any

COLUMNS = ("order_id", "customer", "email", "total", "currency", "status")

# (order, customer, total, status)
ORDERS = (
    ("A-1001", "carla", 24.90, "delivered"),
    ("A-1002", "david", 59.00, "delivered"),
    ("A-1003", "elena", 18.50, "delivered"),
    ("A-1004", "farid", 99.99, "delivered"),
    ("A-1005", "greta", 42.00, "shipped"),
    ("A-1006", "henry", 75.25, "delivered"),
    ("A-1007", "irina", 12.75, "delivered"),
    ("A-1008", "jamal", 88.80, "delivered"),
    ("A-1009", "katja", 35.40, "shipped"),
    ("A-1010", "louis", 64.10, "delivered"),
    ("A-1011", "maria", 100.00, "delivered"),
    ("A-1012", "noemi", 27.30, "delivered"),
    ("A-1013", "oscar", 149.00, "delivered"),
    ("A-1014", "paula", 51.60, "delivered"),
    ("A-1015", "quinn", 240.00, "delivered"),
    ("A-1016", "rosa", 130.50, "delivered"),
    ("A-1017", "samir", 399.00, "shipped"),
    ("A-1018", "tanja", 101.00, "delivered"),
    ("A-1019", "ugo", 1250.00, "delivered"),
    ("A-1020", "vera", 310.00, "delivered"),
    ("A-1021", "walid", 175.95, "delivered"),
    ("A-1022", "xenia", 560.00, "shipped"),
    ("A-1023", "yusuf", 33.30, "delivered"),
    ("A-1024", "zoe", 48.20, "delivered"),
    ("A-1025", "carla", 19.90, "delivered"),
    ("A-1026", "carla", 66.60, "delivered"),
    ("A-1027", "elena", 71.45, "delivered"),
    ("A-1028", "elena", 22.00, "refunded"),
    ("A-1029", "farid", 188.00, "delivered"),
    ("A-1030", "farid", 15.15, "delivered"),
    ("A-1031", "greta", 220.00, "delivered"),
    ("A-1032", "greta", 38.00, "delivered"),
)


def orders() -> list[dict[str, Any]]:
    """All orders: order_id, customer, email, total, currency, status."""
    return [
        dict(
            zip(
                COLUMNS,
                (number, customer, f"{customer}@example.org", total, "EUR", status),
                strict=True,
            )
        )
        for number, customer, total, status in ORDERS
    ]


def build(path: str | Path) -> Path:
    """Write the orders to a SQLite file, in place of any that stand there."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path)
    with db:
        db.execute("DROP TABLE IF EXISTS orders")
        db.execute(
            "CREATE TABLE orders (order_id TEXT PRIMARY KEY, customer TEXT NOT NULL,"
            " email TEXT NOT NULL, total REAL NOT NULL, currency TEXT NOT NULL,"
            " status TEXT NOT NULL)"
        )
        db.executemany(
            "INSERT INTO orders VALUES (:order_id, :customer, :email, :total, :currency, :status)",
            orders(),
        )
    db.close()
    return Path(path)


def read(path: str | Path) -> dict[str, dict[str, Any]]:
    """{order_id: order} as the file has it."""
    db = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
    try:
        rows = db.execute(f"SELECT {', '.join(COLUMNS)} FROM orders").fetchall()
    finally:
        db.close()
    return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the orders of the refunds example.")
    parser.add_argument("path", nargs="?", default=".perdure/refunds/orders.db")
    path = build(parser.parse_args().path)
    print(f"{len(ORDERS)} orders in {path}")


if __name__ == "__main__":
    main()
