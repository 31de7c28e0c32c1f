"""Errors a user can act on, in four parts: where, got, allowed, usual fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input, told in four parts; the command line prints it and exits with status 2.

    What was got is somebody else's text: where it is long its middle is left out, and what a terminal would not show
    (or would obey) is escaped.
    """

    def __init__(self, where: str, got: str, allowed: str, fix: str):
        self.where, self.got, self.allowed, self.fix = map(_shown, (where, got, allowed, fix))
        super().__init__(f"{self.where}: got {self.got}; allowed {self.allowed}; {self.fix}")


#: Characters of one part of an error.
_LONGEST = 600


def _shown(text: str) -> str:
    """A text that fits a terminal: its middle left out where it is long, nothing in it that is not printable."""
    if len(text) > _LONGEST:
        left_out = len(text) - _LONGEST
        text = f"{text[: _LONGEST // 2]} … ({left_out:,} characters) … {text[-_LONGEST // 2 :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def nearest(name: str, known: Iterable[str], count: int = 3, cutoff: float = 0.5) -> list[str]:
    """The known names most like ``name``, best first; letters and digits alone are compared."""

    def plain(text: str) -> str:
        return "".join(c for c in text.lower() if c.isalnum())

    by_plain: dict[str, list[str]] = {}
    for candidate in known:
        by_plain.setdefault(plain(candidate), []).append(candidate)
    matches = difflib.get_close_matches(plain(name), by_plain, n=count, cutoff=cutoff)
    return [candidate for match in matches for candidate in by_plain[match]][:count]


def unknown_name(where: str, name: str, known: Iterable[str], what: str) -> InputError:
    """An :class:`InputError` for a misspelt name, suggesting the nearest known ones."""
    known = sorted(known)
    close = nearest(name, known)
    shown = ", ".join(known[:12]) + (f" … ({len(known)} in all)" if len(known) > 12 else "")
    fix = f"did you mean {' or '.join(repr(c) for c in close)}?" if close else f"pick one of the {what} listed"
    return InputError(where, repr(name), shown, fix)
