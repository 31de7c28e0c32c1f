"""What is trained."""

from __future__ import annotations

from dse.types.fields import POSITIVE, SHARE, YES_OR_NO, Scalar, metadata, record


@record
class Workload:
    """A dense decoder transformer and the batch it is trained on.

    Parameter counts follow from the shape (``dse.model.work.parameters.parameter_count``);
    biases are left out, as in the published shape tables.
    """

    n_layers: Scalar = metadata("L", "1", "transformer layers", bounds=POSITIVE)
    hidden: Scalar = metadata("h", "1", "hidden size", bounds=POSITIVE)
    n_heads: Scalar = metadata("a", "1", "query heads", bounds=POSITIVE)
    n_kv_heads: Scalar = metadata("g", "1", "key/value heads", bounds=POSITIVE)
    head_dim: Scalar = metadata("d", "1", "head size", bounds=POSITIVE)
    ffn_hidden: Scalar = metadata("f", "1", "width of one feed-forward up projection", bounds=POSITIVE)
    gated: Scalar = metadata("", "1", "1 when the feed-forward has a gate (three matrices)", bounds=SHARE)
    vocab: Scalar = metadata("V", "1", "vocabulary size", bounds=POSITIVE)
    tied_embeddings: Scalar = metadata("", "1", "1 when input and output embeddings share weights", bounds=SHARE)
    learned_positions: Scalar = metadata(
        "", "1", "1 when positions are a learned table of seq_len x hidden", bounds=SHARE
    )
    rotary: Scalar = metadata("", "1", "1 when queries and keys are rotated (RoPE)", bounds=SHARE)
    relative_positions: Scalar = metadata(
        "", "1", "1 when every layer projects relative positions (Transformer-XL)", bounds=SHARE
    )
    dropout: Scalar = metadata("", "1", "1 when dropout is on (GPT-3 era)", bounds=SHARE)
    norm_vectors: Scalar = metadata("", "1", "weight vectors of a norm: its scale, 2 with a shift", default=1.0)
    window: Scalar = metadata("w", "1", "attention window in tokens of the local layers", bounds=POSITIVE)
    local_layers: Scalar = metadata("", "1", "share of layers whose attention is local (windowed)", bounds=SHARE)
    seq_len: Scalar = metadata("s", "1", "sequence length in tokens", bounds=POSITIVE)
    global_batch: Scalar = metadata("B", "1", "sequences a step over all devices", bounds=POSITIVE)
    run_tokens: Scalar = metadata("", "1", "tokens of a whole training run", default=300e9, bounds=POSITIVE)
    backward: Scalar = metadata(
        "", "1", "1 when it is trained, 0 for the forward pass alone", default=1.0, bounds=YES_OR_NO
    )
