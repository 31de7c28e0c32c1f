"""Mutants of the documents that users write, through the doors that read them."""
