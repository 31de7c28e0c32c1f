"""A specification as a grid: values, index, design.

Answers which designs a sweep has, in which order, and the leaves of each. A grid is orthogonal dimensions x the table
of mappings; designs that differ in their records are grids of their own, which one grid labels.

Knows specifications, the catalogue and the rules of divisibility; nothing of evaluation or results.

Start with `compose.build`: `names.py` has the values of named records, `degrees.py` and `mappings.py` the table,
`structures.py` the division by records, `grid.py` the index.
"""
