"""What is kept of many designs: the best, the top, fronts, minima, histograms.

A reduction is a field of :class:`~dse.sweep.reduce.keep.BlockResult` with its row in ``keep._MERGES``. ``winners``
says which designs win, ``overview`` what is told of all of them, ``collection`` joins blocks, ``fronts`` chooses
designs of a front to show. Start at ``keep.block_results``.
"""
