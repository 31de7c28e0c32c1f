"""Commands of the lab, which join ``dse`` by entry points of the group ``dse.commands``.

Each module is a capability as those of :mod:`dse.capabilities`, over one room of the lab: ``calibrate`` (fits),
``diagnose`` (evidence), ``measure`` (decide), ``page`` and ``report`` (page), ``posttrain`` (rl), ``simulate``
(simulator). Start with ``page.py``, the shortest that has options of a design, of results and of files.
"""

__all__: list[str] = []
