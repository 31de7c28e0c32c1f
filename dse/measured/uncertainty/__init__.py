"""How sure a figure is: distance from measured rows, spreads of leaves, prices, one posterior of all, intervals.

``posterior`` puts all that is not known of some designs into one set of normal factors, from the spreads of leaves
(``spreads``), what intervals add by distance (``distance``, ``parts``) and prices (``bills``). ``intervals`` and
``rows`` ask it for designs and for measured rows, ``kernel_times`` for single kernels. Start with ``posterior``.
"""
