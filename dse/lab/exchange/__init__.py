"""Steps as files of other tools: writers of ``dse trace --format`` (group ``dse.exchange`` of entry points)."""
