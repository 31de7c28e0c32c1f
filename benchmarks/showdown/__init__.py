"""The same published rows through every tool that pip installs or whose formulas are published (docs/showdown.md)."""
