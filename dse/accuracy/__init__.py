"""How right the engine is: the page of errors that ``dse validate --docs`` writes."""

from dse.accuracy.calculon import calculon_section, spearman
from dse.accuracy.page import CLAIMS, Claim, page, write_accuracy

__all__ = ["CLAIMS", "Claim", "calculon_section", "page", "spearman", "write_accuracy"]
