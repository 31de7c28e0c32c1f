"""The page of errors: predictions beside published measurements."""
