"""Workloads from the ``config.json`` of a model on Hugging Face.

Architectures are read by their keys (``keys.toml``). What no key says (whether the feed-forward has a gate, which
layers have a window) follows from ``model_type``, as the classes of Transformers have it (``families.toml``), and so do
keys that are absent (``classes.toml``). A block that a workload cannot represent is an InputError that names the key.
"""

from dse.designs.catalog.huggingface.checkpoints import CheckpointFormat
from dse.designs.catalog.huggingface.config import ModelConfig, read_config
from dse.designs.catalog.huggingface.families import FAMILIES
from dse.designs.catalog.huggingface.files import parse, read, read_quantization
from dse.designs.catalog.huggingface.writing import as_toml

__all__ = [
    "FAMILIES",
    "CheckpointFormat",
    "ModelConfig",
    "as_toml",
    "parse",
    "read",
    "read_config",
    "read_quantization",
]
