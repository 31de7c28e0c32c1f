"""Search methods; a new one is a file here, a line in ``METHODS`` and its options in ``dse.spec.search``."""
