"""Workloads from the ``config.json`` of a model on Hugging Face.

Architectures are read by their keys (``keys.toml``). What no key says (whether the feed-forward has a gate, which
layers have a window) follows from ``model_type``, as the classes of Transformers have it (``families.toml``), and so do
keys that are absent (``classes.toml``). A block that a workload cannot represent is an InputError that names the key.
"""

from dse.designs.catalog.huggingface.checkpoints import CheckpointFormat as CheckpointFormat
from dse.designs.catalog.huggingface.config import ModelConfig as ModelConfig, read_config as read_config
from dse.designs.catalog.huggingface.families import FAMILIES as FAMILIES
from dse.designs.catalog.huggingface.files import (
    parse as parse,
    read as read,
    read_quantization as read_quantization,
)
from dse.designs.catalog.huggingface.writing import as_toml as as_toml
