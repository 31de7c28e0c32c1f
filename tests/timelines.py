"""Measures of a timeline, to compare with closed forms."""

from dse.views.trace.orders import PassKind


def put_off(timeline, device):
    """Maximum chunks of a device between their input gradient and the end of their weight gradient."""
    waiting = most = 0
    for event in (e for e in timeline.events if e.device == device):
        for task in event.slot:
            waiting += task.kind is PassKind.input_gradient
            most = max(most, waiting)
            waiting -= task.kind is PassKind.weight_gradient
    return most
