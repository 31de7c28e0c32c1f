"""A workload file from what a configuration says of a model."""

from __future__ import annotations

import json

from dse.designs.catalog.huggingface.config import ModelConfig


def as_toml(model: ModelConfig, name: str, where: str = "config.json") -> str:
    """Return a workload file.

    Args:
        model: what the configuration says.
        name: of the workload.
        where: how the source of the file calls the configuration.
    """
    fields = dict(model.fields)
    tables = {name for field in fields for name, dot, _ in [field.partition(".")] if dot}
    length = fields.pop("seq_len")
    origin = "longest context of the configuration"
    origin += ", before it was extended" if length != fields["max_seq_len"] else ""
    lines = [
        f"name = {_quoted(name)}",
        f"source = {_quoted(f'{where} of Hugging Face')}",
        'confidence = "paper"',
        *(f"note = {_quoted('; '.join(texts))}" for texts in [model.remarks] if texts),
        "",
        *(f"{field} = {_plain(value)}" for field, value in fields.items() if value is not False and "." not in field),
        "",
        "# the length and the batch of your training: a config.json does not have them",
        f'seq_len = {{ value = {length}, confidence = "estimate", source = "{origin}" }}',
    ]
    for table in sorted(tables):
        table_fields = {name.partition(".")[2]: value for name, value in fields.items() if name.startswith(f"{table}.")}
        lines += ["", f"[{table}]", *(f"{name} = {_plain(value)}" for name, value in table_fields.items())]
    return "\n".join(lines) + "\n"


def _plain(value: float | str) -> str:
    """Return a value as TOML."""
    if isinstance(value, str):
        return _quoted(value)
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _quoted(text: str) -> str:
    """Return a text as a TOML string, without what cannot be printed."""
    return json.dumps("".join(c for c in text if c.isprintable()), ensure_ascii=False)
