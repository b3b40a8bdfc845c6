"""Regenerate the committed Avro schemas: ``python -m perdure.schemas.generate``."""

from __future__ import annotations

import msgspec

from . import avro, records


def stored() -> tuple[type[msgspec.Struct], ...]:
    """Every struct that is kept in a store: the core's, the engine's layout, the workers' ledger."""
    from perdure.connectors.ledger import STATE as LEDGER
    from perdure.streams.core.state import STATE
    from perdure.streams.engine.layout import STATE as LAYOUT

    return (*STATE, *LAYOUT, *LEDGER)


def main() -> None:
    for path in avro.write_schemas(records.PUBLIC, stored()):
        print(path.relative_to(avro.DIRECTORY))


if __name__ == "__main__":
    main()
