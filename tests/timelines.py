"""What devices of a timeline do and hold, to compare with closed forms."""

from dse.views.trace.orders import PassKind


def busy(timeline, device):
    """Seconds with work."""
    return sum(event.end - event.start for event in timeline.events if event.device == device)


def in_flight(timeline, device, sizes=None):
    """Maximum chunks of activations on a device; with ``sizes`` of the model's chunks, their sum."""
    held = most = 0.0
    for event in (e for e in timeline.events if e.device == device):
        for task in event.slot:
            size = 1.0 if sizes is None else sizes[task.chunk]
            held += size if task.kind is PassKind.forward else 0.0
        most = max(most, held)
        for task in event.slot:
            size = 1.0 if sizes is None else sizes[task.chunk]
            held -= size if task.kind in (PassKind.backward, PassKind.weight_gradient) else 0.0
    return most


def put_off(timeline, device):
    """Maximum chunks of a device between their input gradient and the end of their weight gradient."""
    waiting = most = 0
    for event in (e for e in timeline.events if e.device == device):
        for task in event.slot:
            waiting += task.kind is PassKind.input_gradient
            most = max(most, waiting)
            waiting -= task.kind is PassKind.weight_gradient
    return most
