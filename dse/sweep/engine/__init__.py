"""Many designs at once: which axes are computed together, compiled programs, chunks.

A sweep is evaluated as outer index x inner index (:class:`~dse.sweep.engine.nesting.Nest`). Four index sets, each
numbered from 0 in mixed radix with the last digit fastest::

                      inner index: first factor x second factor
                         0  1  2  3  …  n_inner - 1
    line 0    outer 0  [ ■  □  ■  ■  …  ■ ]  ┐            ┐
              outer 1  [ ■  ■  ■  □  …  □ ]  │ chunk      │
    line 1    outer 2  [ □  ■  ■  ■  …  ■ ]  │            │ block
    line 2    outer 3  [ ■  ■  □  ■  …  ■ ]  ┘            │
              …                                           ┘
                         ■ a design: the mask has it    □ no mapping

design
    ``[0, n_designs)``, the numbering of results. Digits: (value of every dimension of the grid…, mapping).
line
    ``[0, n_lines)``. Digits: (value of every outer dimension…, row of degrees). A *block*, the unit that is stored, is
    a range of lines. File names and messages count it in rows of the grid, ``points_per_line`` for each line.
outer index
    ``[0, n_outer)``. Digits: (value of every outer dimension…, mask row). A *mask row* is a row of degrees with a value
    of every outer option, where some inner options make a mapping: a line has one or more of them. A *chunk*, the
    unit that a device computes at once, is a range of outer indices.
inner index
    ``[0, n_inner)``. Digits: (values of the axes of the first factor…, of the second factor…).

A variable of the model depends on some of three array axes, ``[first factor, second factor, outer]``. A *stage* is a
function of the program that computes the variables of the same array axes.
"""
