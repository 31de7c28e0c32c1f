"""``python -m benchmarks.diagnosis [DRAWS [FIRST]]``: faults in traces of our own, how many are named, and their seconds."""

from __future__ import annotations

import sys

from benchmarks.diagnosis.scores import score, table

if __name__ == "__main__":
    draws, first = [*map(int, sys.argv[1:]), *(100, 0)[len(sys.argv) - 1 :]][:2]
    scores = [score(number, first) for number in range(draws)]
    print(table(scores))
    for one in scores:
        if not (one.is_named and one.is_close):
            print(f"{one.draw.fault} {one.draw.about}: named {', '.join(one.named) or 'nothing'}, {1e3 * one.seconds:.3g} ms of "
                  f"{1e3 * one.draw.seconds:.3g} ms of a step of {1e3 * one.step:.3g} ms; {one.draw.described}")  # fmt: skip
