"""How ``make site`` builds the pages of the repository into ``site/``: Sphinx, MyST and furo, without the network."""
