"""The pages of the documentation; :mod:`docs.make` holds the programs that write the generated ones."""
