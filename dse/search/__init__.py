"""Search: optimisers over the space of a specification, for spaces too large to enumerate."""
