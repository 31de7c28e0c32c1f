"""The page of published studies: one verdict for each claim."""
