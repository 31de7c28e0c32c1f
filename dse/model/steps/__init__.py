"""A step put together from its parts."""
