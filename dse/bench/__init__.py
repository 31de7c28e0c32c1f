"""How fast it is: rates of evaluation, and what a cold and a warm ``dse run`` take and spend it on."""

from dse.bench.measure import bench, plain_numbers, rates
from dse.bench.page import against_loop, page, slower

__all__ = ["against_loop", "bench", "page", "plain_numbers", "rates", "slower"]
