"""Finished parts on disk."""
