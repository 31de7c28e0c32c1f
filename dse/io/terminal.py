"""What the command prints: texts of others, of which a terminal obeys nothing.

Names, titles, sources and notes of a catalogue, of results and of tables are somebody else's. All that a command
prints passes through the two classes here: what it writes to a stream (:class:`VisibleStream`), and what it lays out
(:class:`TerminalConsole`, whose colours and movements of the cursor are added after that).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dse.errors import LAYOUT, visible


class VisibleStream:
    """A text stream that escapes what a terminal would obey or hide, and else passes on to the stream that it wraps."""

    def __init__(self, stream: IO[str]) -> None:
        self.unfiltered = getattr(stream, "unfiltered", stream)
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, its control codes escaped, and return the length of the given text."""
        self._stream.write(visible(text, LAYOUT))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write some texts, their control codes escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class TerminalConsole(Console):
    """A console whose text has neither control codes nor markup of its own.

    Its styles and its control of the cursor go past the filter of :class:`VisibleStream`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False} | options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of a renderable, the control codes in their text escaped."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text, LAYOUT)
            yield segment if text is segment.text else Segment(text, segment.style)

    @property
    def file(self) -> IO[str]:
        """Stream below the filter, which takes styles."""
        stream = super().file
        return getattr(stream, "unfiltered", stream)

    @file.setter
    def file(self, stream: IO[str]) -> None:
        self._file = stream


def filter_output() -> None:
    """Replace standard output and standard error by streams that escape control codes."""
    sys.stdout, sys.stderr = VisibleStream(sys.stdout), VisibleStream(sys.stderr)


@contextlib.contextmanager
def filtered_output() -> Iterator[None]:
    """Escape control codes on standard output and standard error in this context."""
    streams = sys.stdout, sys.stderr
    filter_output()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
