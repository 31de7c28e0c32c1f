"""``python -m benchmarks.workers``: measure everything and print it as JSON."""

import json

from benchmarks.workers import measure

if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
