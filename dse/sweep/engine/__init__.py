"""Many designs at once: nesting, programs, chunks."""
