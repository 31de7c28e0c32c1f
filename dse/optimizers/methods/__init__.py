"""Search methods; a new one is a file here, a line in ``METHODS`` and its options in ``dse.spec.search``.

``base`` says what a method is: pure functions that propose designs and learn what they are worth; one of ``external``
asks and tells on the host. The driver does all seeds at once.
"""
