"""Cost and carbon of dies, packages, accelerators and systems (records: dse.types.money)."""
