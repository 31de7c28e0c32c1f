"""The lab: what research adds to the core, which does not know it. It joins by entry points: :mod:`dse.io.plugins`."""

__all__: list[str] = []
