"""Commands of the lab, which join ``dse`` by entry points of the group ``dse.commands``."""

__all__: list[str] = []
