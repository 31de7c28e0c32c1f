"""Models that files state by their shape: a workload of its own, in a catalogue folder for the time of a reading."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from dse.designs import catalog

_PREFIX = "workload."

#: Leaves without which there is no model.
NEEDED = ("n_layers", "hidden", "n_heads")

#: Vocabulary where neither options nor a model say it: that of Llama 3.
_VOCABULARY = 128_256

#: Length of training sequences where nothing says it.
_LENGTH = 4096


def completed_shape(shape: Mapping[str, float], seq_len: float | None) -> tuple[dict[str, float], list[str]]:
    """Return field of a workload → value of a shape with what follows from it, and notes on what is assumed.

    Heads share keys and values only where that is stated; a head has the model's width over the number of heads; a
    feed-forward without a width is four times as wide as the model.

    Args:
        shape: path → value of the leaves that are stated.
        seq_len: tokens of a sequence; None for unstated.

    Returns:
        Fields, empty where layers, width or heads are missing, and notes.
    """
    fields = {path.removeprefix(_PREFIX): value for path, value in shape.items()}
    if not all(fields.get(name) for name in NEEDED):
        return {}, []
    notes = []
    fields.setdefault("n_kv_heads", fields["n_heads"])
    fields.setdefault("head_dim", fields["hidden"] / fields["n_heads"])
    if "ffn_hidden" not in fields:
        fields["ffn_hidden"] = fields.get("experts.expert_ffn", 4.0 * fields["hidden"])
        notes.append(f"width of the feed-forward is not stated: {fields['ffn_hidden']:g} (ffn_hidden)")
    if "vocab" not in fields:
        fields["vocab"] = float(_VOCABULARY)
        notes.append(f"size of the vocabulary is not stated: {_VOCABULARY:,} (vocab)")
    fields["seq_len"] = seq_len or float(_LENGTH)
    if "latent.kv_rank" in fields:
        fields.pop("n_kv_heads")
    return fields, notes


@contextlib.contextmanager
def workload_of(fields: Mapping[str, float | str | bool], name: str) -> Iterator[str]:
    """Give the name of a workload of these fields, which the catalogue has within the context.

    Args:
        fields: field of a workload file → value, those of tables dotted.
        name: of the model, for reports.
    """
    with tempfile.TemporaryDirectory(prefix="dse-read-") as folder:
        path = Path(folder) / catalog.FOLDERS["workload"]
        path.mkdir()
        slug = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-") or "model-of-the-files"
        (path / f"{slug}.toml").write_text(workload_toml(fields, name or "model of the files"), encoding="utf-8")
        with catalog.added_folder(Path(folder)):
            yield slug


def workload_toml(fields: Mapping[str, float | str | bool], name: str) -> str:
    """Return the TOML of a workload.

    >>> print(workload_toml({"n_layers": 2.0, "experts.top_k": 1.0}, "m").splitlines()[-1])
    experts.top_k = 1
    """
    lines = [f"name = {json.dumps(name)}", 'source = "options of the files"', 'confidence = "paper"']
    return "\n".join([*lines, *(f"{field} = {_value(value)}" for field, value in fields.items())]) + "\n"


def _value(value: float | str | bool) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool | str):
        return json.dumps(value)
    return f"{value:.0f}" if value == int(value) else repr(value)
