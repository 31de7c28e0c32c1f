"""How fast it is: rates of evaluation, and what a cold and a warm ``dse run`` take and spend it on."""

from benchmarks.rates.measure import against_loop, bench, slower
from benchmarks.rates.programs import plain_numbers, rates

__all__ = ["against_loop", "bench", "plain_numbers", "rates", "slower"]
