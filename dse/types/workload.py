"""Workloads: models, their training, and their requests."""

from __future__ import annotations

from dse.types.fields import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, YES_OR_NO, Bounds, Scalar, metadata, record
from dse.types.serving import Requests, Reuse

_AT_LEAST_ONE, _INTEGER = Bounds(low=1.0), Bounds(is_integer=True)


@record
class Experts:
    """Mixture of experts in place of the feed-forward of all layers but the first ones.

    A router sends each token to ``top_k`` of ``n_experts``; a shared expert takes every token.
    """

    n_experts: Scalar = metadata("E", "1", "routed experts per layer", bounds=COUNT)
    top_k: Scalar = metadata("k", "1", "routed experts per token", bounds=COUNT)
    expert_ffn: Scalar = metadata("f_e", "1", "width of an expert's up projection", bounds=POSITIVE)
    shared_ffn: Scalar = metadata("f_s", "1", "width of all shared experts, 0 none", default=0.0, bounds=NOT_NEGATIVE)
    first_dense: Scalar = metadata("", "1", "leading layers with a dense feed-forward", default=0.0, bounds=_INTEGER)
    imbalance: Scalar = metadata("", "1", "load of the busiest rank over the mean", default=1.0, bounds=_AT_LEAST_ONE)
    capacity: Scalar = metadata(
        "C",
        "1",
        "expert capacity factor; 0: dropless",
        default=0.0,
    )
    moe_every: Scalar = metadata(
        "",
        "1",
        "interval of layers with experts",
        default=1.0,
        bounds=COUNT,
    )
    n_predict: Scalar = metadata(
        "",
        "1",
        "multi-token prediction depth",
        default=0.0,
        bounds=_INTEGER,
    )
    biased: Scalar = metadata("", "1", "biases of the experts' products: 1 yes", default=0.0, bounds=YES_OR_NO)
    n_groups: Scalar = metadata("G", "1", "groups of experts", default=1.0, bounds=COUNT)
    group_limit: Scalar = metadata(
        "g",
        "1",
        "maximum groups per token (node-limited routing), 0 any",
        default=0.0,
        bounds=_INTEGER,
    )

    @property
    def upper_limits(self) -> dict[str, Scalar]:
        """Return leaf → its upper limit by the other leaves; a busiest rank or a padded expert has every token once."""
        all_tokens = self.n_experts / self.top_k
        return {
            "top_k": self.n_experts,
            "group_limit": self.n_groups,
            "imbalance": all_tokens,
            "capacity": all_tokens,
        }

    @property
    def within_limits(self) -> dict[str, Scalar]:
        """Return leaf → true within its upper limit, up to rounding of single precision."""
        return {name: getattr(self, name) <= most * (1.0 + 1e-5) for name, most in self.upper_limits.items()}


@record
class Latent:
    """Multi-head latent attention (DeepSeek-AI 2024, section 2.1).

    Queries, keys and values are projected down to a few columns, and up again to all heads. ``rope_dim`` of the
    ``head_dim`` columns of a query or key are rotary; those of the keys are one vector for all heads.
    """

    q_rank: Scalar = metadata("q_r", "1", "rank of compressed queries, 0 none", bounds=NOT_NEGATIVE)
    kv_rank: Scalar = metadata("k_r", "1", "rank of compressed keys and values", bounds=POSITIVE)
    rope_dim: Scalar = metadata("d_rope", "1", "rotary dimension per head", bounds=NOT_NEGATIVE)
    v_dim: Scalar = metadata("d_v", "1", "value dimension per head", bounds=POSITIVE)


@record
class Recurrent:
    """State-space layers, with a state of constant size in place of keys and values, and hybrids of layers.

    Every head of such a layer keeps a matrix of ``state_key_dim x state_value_dim``: Mamba-2 (Dao and Gu 2024), gated
    DeltaNet (Yang et al. 2025), linear and lightning attention, RWKV. Mamba-1 has a head per column. The counts of
    attention, state and feed-forward parts are over ``n_layers`` blocks; a block with two parts counts in both.
    """

    attention_layers: Scalar = metadata("", "1", "attention blocks", bounds=NOT_NEGATIVE)
    recurrent_layers: Scalar = metadata("", "1", "recurrent blocks", bounds=NOT_NEGATIVE)
    ffn_layers: Scalar = metadata("", "1", "feed-forward blocks", bounds=NOT_NEGATIVE)
    state_heads: Scalar = metadata("H", "1", "state heads", bounds=POSITIVE)
    state_key_heads: Scalar = metadata("", "1", "key and query heads (groups)", bounds=POSITIVE)
    state_key_dim: Scalar = metadata("N", "1", "key dimension per state head", bounds=POSITIVE)
    state_value_dim: Scalar = metadata("P", "1", "value dimension per state head", bounds=POSITIVE)
    state_gates: Scalar = metadata("", "1", "projected columns of gates and decays", default=0.0)
    state_bytes: Scalar = metadata("", "B", "bytes per state element", default=4.0, bounds=POSITIVE)
    convolution: Scalar = metadata("", "1", "convolution taps, 0 none", default=0.0)
    output_gate: Scalar = metadata(
        "",
        "1",
        "gated attention output: 1 yes",
        default=0.0,
        bounds=YES_OR_NO,
    )


@record
class Sparse:
    """Sparse attention over all cached tokens.

    An indexer of a few narrow heads scores all tokens and selects (DeepSeek-AI 2025, DSA), or the pattern is fixed: the
    last tokens and a share of those before (Phi-3: Abdin et al. 2024, section 2).
    """

    attended: Scalar = metadata("", "1", "maximum attended tokens per query", bounds=POSITIVE)
    attended_share: Scalar = metadata("", "1", "share of further tokens attended", default=0.0, bounds=SHARE)
    sparse_layers: Scalar = metadata("", "1", "share of layers with sparse attention", default=1.0, bounds=SHARE)
    index_heads: Scalar = metadata("", "1", "indexer heads, 0 none", default=0.0)
    index_dim: Scalar = metadata("", "1", "indexer dimension per head", default=0.0)
    index_bytes: Scalar = metadata("", "B", "bytes per indexer key element", default=1.0, bounds=POSITIVE)


@record
class Adapters:
    """Low-rank adapters of frozen matrices, the only trained weights (LoRA: Hu et al. 2021).

    ``W [n, m]`` has ``A [r, m]`` and ``B [n, r]`` in 16 bits; the output is ``W x + B A x``. Queries, keys and values
    have one common adapter, and so have up projection and gate. Routed experts have none.
    """

    rank: Scalar = metadata("r", "1", "rank of an adapter", default=16.0, bounds=POSITIVE)
    qkv: Scalar = metadata("", "1", "adapters on queries, keys, values: 1 yes", default=1.0, bounds=YES_OR_NO)
    projection: Scalar = metadata("", "1", "adapters on the attention output: 1 yes", default=1.0, bounds=YES_OR_NO)
    feed_forward: Scalar = metadata("", "1", "adapters on the feed-forward: 1 yes", default=1.0, bounds=YES_OR_NO)
    frozen_bytes: Scalar = metadata(
        "",
        "B",
        "bytes per frozen weight (QLoRA: 0.5)",
        default=2.0,
        bounds=POSITIVE,
    )


@record
class Packing:
    """Sequences packed from documents with separate attention (fine-tuning, pre-training with masks)."""

    document: Scalar = metadata("", "1", "mean document length seen by a token", bounds=_AT_LEAST_ONE)


@record
class Convergence:
    """Tokens of a run as a function of its batch; an optional part of a workload, by default ``run_tokens``.

    A loss that takes ``E`` tokens in the smallest batches takes ``E (1 + B / B_crit)`` at a batch of ``B`` tokens
    (McCandlish et al. 2018, section 2.3). The critical batch grows as the loss falls:
    ``B_crit = B* / L^(1 / alpha_B)`` (Kaplan et al. 2020, section 5.1).
    """

    critical_batch: Scalar = metadata("B_crit", "1", "critical batch, tokens; 0: from the loss", default=0.0)
    target_loss: Scalar = metadata(
        "L", "1", "target loss, nats per token", default=2.0, bounds=Bounds(low=0.1, high=20.0)
    )
    critical_scale: Scalar = metadata(
        "B*",
        "1",
        "critical batch at one nat, tokens (Kaplan et al. 2020: 2e8)",
        default=2e8,
        bounds=Bounds(low=1.0, high=1e12),
    )
    critical_exponent: Scalar = metadata(
        "alpha_B",
        "1",
        "loss exponent of the critical batch (Kaplan et al. 2020: 0.21)",
        default=0.21,
        bounds=Bounds(low=0.05, high=1.0),
    )
    reference_batch: Scalar = metadata(
        "", "1", "batch at which the run needs run_tokens, tokens; 0: smallest", default=0.0
    )


@record
class Workload:
    """A decoder transformer and its training batch; dense except for layers with ``experts``.

    Parameter counts follow from the shape (``dse.model.work.parameters.parameter_count``), without biases, as in
    published shape tables.
    """

    n_layers: Scalar = metadata("L", "1", "transformer layers", bounds=POSITIVE)
    hidden: Scalar = metadata("h", "1", "hidden size", bounds=POSITIVE)
    n_heads: Scalar = metadata("a", "1", "query heads", bounds=POSITIVE)
    n_kv_heads: Scalar = metadata("g", "1", "key/value heads", bounds=POSITIVE)
    head_dim: Scalar = metadata("d", "1", "head size", bounds=POSITIVE)
    ffn_hidden: Scalar = metadata("f", "1", "width of a feed-forward up projection", bounds=POSITIVE)
    gated: Scalar = metadata("", "1", "gated feed-forward, three matrices: 1 yes", bounds=SHARE)
    vocab: Scalar = metadata("V", "1", "vocabulary size", bounds=POSITIVE)
    tied_embeddings: Scalar = metadata("", "1", "shared input and output embeddings: 1 yes", bounds=SHARE)
    learned_positions: Scalar = metadata("", "1", "learned positions, seq_len x hidden: 1 yes", bounds=SHARE)
    rotary: Scalar = metadata("", "1", "rotary positions (RoPE): 1 yes", bounds=SHARE)
    relative_positions: Scalar = metadata(
        "", "1", "relative positions in every layer (Transformer-XL): 1 yes", bounds=SHARE
    )
    dropout: Scalar = metadata("", "1", "dropout: 1 yes", bounds=SHARE)
    parallel_block: Scalar | None = metadata(
        "",
        "1",
        "attention and feed-forward in parallel (GPT-J, PaLM): 1 yes",
        default=None,
        bounds=YES_OR_NO,
        absent=0.0,
    )
    norm_vectors: Scalar = metadata("", "1", "weight vectors per norm: 1 scale, 2 with a shift", default=1.0)
    window: Scalar = metadata("w", "1", "attention window of the local layers, tokens", bounds=POSITIVE)
    local_layers: Scalar = metadata("", "1", "share of layers with local (windowed) attention", bounds=SHARE)
    seq_len: Scalar = metadata("s", "1", "sequence length, tokens", bounds=POSITIVE)
    global_batch: Scalar = metadata("B", "1", "sequences per step, all devices", bounds=POSITIVE)
    run_tokens: Scalar = metadata("", "1", "tokens of a training run", default=300e9, bounds=POSITIVE)
    backward: Scalar = metadata("", "1", "1 training, 0 forward pass only", default=1.0, bounds=YES_OR_NO)
    experts: Experts | None = None  # None: dense
    latent: Latent | None = None  # None: attention with whole queries, keys and values
    recurrent: Recurrent | None = None  # None: attention and a feed-forward in all layers
    sparse: Sparse | None = None  # None: full or windowed attention
    adapters: Adapters | None = None  # fine-tuning of adapters only
    requests: Requests | None = None  # of serving
    reuse: Reuse | None = None  # None: what requests share is always in the cache
    packing: Packing | None = None  # None: one document per sequence
    convergence: Convergence | None = None  # None: the same tokens at any batch

    @property
    def predicted(self) -> Scalar:
        """Return the count of predicted tokens of multi-token prediction, each with a layer and a head.

        It is the literal 0 for a dense model.
        """
        return 0.0 if self.experts is None else self.experts.n_predict

    @property
    def blocks(self) -> Scalar:
        """Return the count of layers of the model and of multi-token prediction."""
        return self.n_layers if self.experts is None else self.n_layers + self.experts.n_predict

    @property
    def trains_all(self) -> bool:
        """True where training changes all weights, not adapters only."""
        return self.adapters is None

    @property
    def is_serving_only(self) -> bool:
        """True for layers without a training model: state-space layers, sparse attention."""
        return self.recurrent is not None or self.sparse is not None
