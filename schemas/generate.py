"""Regenerate the committed Avro schemas: ``python -m perdure.schemas.generate``."""

from __future__ import annotations

from . import avro, records


def main() -> None:
    from perdure.connectors.ledger import STATE as LEDGER  # the writers' own structs
    from perdure.streams.core.state import STATE

    for path in avro.write_schemas(records.PUBLIC, (*STATE, *LEDGER)):
        print(path.relative_to(avro.DIRECTORY))


if __name__ == "__main__":
    main()
