"""What designs cost and emit: dies, packages, accelerators, systems, their time (records: dse.types.money)."""
