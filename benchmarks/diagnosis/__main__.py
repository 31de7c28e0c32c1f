"""``python -m benchmarks.diagnosis [DRAWS [FIRST]]``: faults in traces of our own, those named, and their seconds."""

from __future__ import annotations

import sys

from benchmarks.diagnosis.scores import missed, score, table

if __name__ == "__main__":
    draws, first = [*map(int, sys.argv[1:]), *(100, 0)[len(sys.argv) - 1 :]][:2]
    scores = [score(number, first) for number in range(draws)]
    print(table(scores))
    for one in scores:
        if not (one.is_named and one.is_close):
            print(missed(one))
