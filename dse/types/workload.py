"""Workloads: models, their training, and their requests."""

from __future__ import annotations

from dse.types.fields import Bounds, Scalar, count, integer, number, positive, record, share, yes_or_no
from dse.types.serving import Requests, Reuse

_AT_LEAST_ONE = Bounds(low=1.0)


@record
class Experts:
    """Mixture of experts in place of the feed-forward of all layers but the first ones.

    A router sends each token to ``top_k`` of ``n_experts``; a shared expert takes every token.
    """

    n_experts: Scalar = count("routed experts per layer", symbol="E")
    top_k: Scalar = count("routed experts per token", symbol="k")
    expert_ffn: Scalar = positive("width of an expert's up projection", symbol="f_e")
    shared_ffn: Scalar = number("width of all shared experts, 0 none", default=0.0, symbol="f_s")
    first_dense: Scalar = integer("leading layers with a dense feed-forward", default=0.0)
    imbalance: Scalar = number("load of the busiest rank over the mean", default=1.0, bounds=_AT_LEAST_ONE)
    capacity: Scalar = number("expert capacity factor; 0: dropless", default=0.0, symbol="C")
    moe_every: Scalar = count("interval of layers with experts", default=1.0)
    n_predict: Scalar = integer("multi-token prediction depth", default=0.0)
    biased: Scalar = yes_or_no("biases of the experts' products: 1 yes", default=0.0)
    clamped: Scalar | None = yes_or_no(
        "inputs of the experts' activation clamped (GPT-OSS): 1 yes", default=None, absent=0.0
    )
    n_groups: Scalar = count("groups of experts", default=1.0, symbol="G")
    group_limit: Scalar = integer("maximum groups per token (node-limited routing), 0 any", default=0.0, symbol="g")

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

    q_rank: Scalar = number("rank of compressed queries, 0 none", symbol="q_r")
    kv_rank: Scalar = positive("rank of compressed keys and values", symbol="k_r")
    rope_dim: Scalar = number("rotary dimension per head", symbol="d_rope")
    v_dim: Scalar = positive("value dimension per head", symbol="d_v")


@record
class Recurrent:
    """State-space layers, with a state of constant size in place of keys and values, and hybrids of layers.

    Every head of such a layer keeps a matrix of ``state_key_dim x state_value_dim``: Mamba-2 (Dao and Gu 2024), gated
    DeltaNet (Yang et al. 2025), linear and lightning attention, RWKV. Mamba-1 has a head per column. The counts of
    attention, state and feed-forward parts are over ``n_layers`` blocks; a block with two parts counts in both.
    """

    attention_layers: Scalar = number("attention blocks")
    recurrent_layers: Scalar = number("recurrent blocks")
    ffn_layers: Scalar = number("feed-forward blocks")
    state_heads: Scalar = positive("state heads", symbol="H")
    state_key_heads: Scalar = positive("key and query heads (groups)")
    state_key_dim: Scalar = positive("key dimension per state head", symbol="N")
    state_value_dim: Scalar = positive("value dimension per state head", symbol="P")
    state_gates: Scalar = number("projected columns of gates and decays", default=0.0)
    state_bytes: Scalar = positive("bytes per state element", "B", default=4.0)
    convolution: Scalar = number("convolution taps, 0 none", default=0.0)
    output_gate: Scalar = yes_or_no("gated attention output: 1 yes", default=0.0)


@record
class Sparse:
    """Sparse attention over all cached tokens.

    An indexer of a few narrow heads scores all tokens and selects (DeepSeek-AI 2025, DSA), or the pattern is fixed: the
    last tokens and a share of those before (Phi-3: Abdin et al. 2024, section 2).
    """

    attended: Scalar = positive("maximum attended tokens per query")
    attended_share: Scalar = share("share of further tokens attended", default=0.0)
    sparse_layers: Scalar = share("share of layers with sparse attention", default=1.0)
    index_heads: Scalar = number("indexer heads, 0 none", default=0.0)
    index_dim: Scalar = number("indexer dimension per head", default=0.0)
    index_bytes: Scalar = positive("bytes per indexer key element", "B", default=1.0)


@record
class Adapters:
    """Low-rank adapters of frozen matrices, the only trained weights (LoRA: Hu et al. 2021).

    ``W [n, m]`` has ``A [r, m]`` and ``B [n, r]`` in 16 bits; the output is ``W x + B A x``. Queries, keys and values
    have one common adapter, and so have up projection and gate. Routed experts have none.
    """

    rank: Scalar = positive("rank of an adapter", default=16.0, symbol="r")
    qkv: Scalar = yes_or_no("adapters on queries, keys, values: 1 yes", default=1.0)
    projection: Scalar = yes_or_no("adapters on the attention output: 1 yes", default=1.0)
    feed_forward: Scalar = yes_or_no("adapters on the feed-forward: 1 yes", default=1.0)
    frozen_bytes: Scalar = positive("bytes per frozen weight (QLoRA: 0.5)", "B", default=2.0)


@record
class Packing:
    """Sequences packed from documents with separate attention (fine-tuning, pre-training with masks)."""

    document: Scalar = number("mean document length seen by a token", bounds=_AT_LEAST_ONE)


@record
class Convergence:
    """Tokens of a run as a function of its batch; an optional part of a workload, by default ``run_tokens``.

    A loss that takes ``E`` tokens in the smallest batches takes ``E (1 + B / B_crit)`` at a batch of ``B`` tokens
    (McCandlish et al. 2018, section 2.3). The critical batch grows as the loss falls:
    ``B_crit = B* / L^(1 / alpha_B)`` (Kaplan et al. 2020, section 5.1).
    """

    critical_batch: Scalar = number("critical batch, tokens; 0: from the loss", default=0.0, symbol="B_crit")
    target_loss: Scalar = number(
        "target loss, nats per token", default=2.0, bounds=Bounds(low=0.1, high=20.0), symbol="L"
    )
    critical_scale: Scalar = number(
        "critical batch at one nat, tokens (Kaplan et al. 2020: 2e8)",
        default=2e8,
        bounds=Bounds(low=1.0, high=1e12),
        symbol="B*",
    )
    critical_exponent: Scalar = number(
        "loss exponent of the critical batch (Kaplan et al. 2020: 0.21)",
        default=0.21,
        bounds=Bounds(low=0.05, high=1.0),
        symbol="alpha_B",
    )
    reference_batch: Scalar = number("batch at which the run needs run_tokens, tokens; 0: smallest", default=0.0)


@record
class Workload:
    """A decoder transformer and its training batch; dense except for layers with ``experts``.

    Parameter counts follow from the shape (``dse.model.work.parameters.parameter_count``), without biases, as in
    published shape tables.
    """

    n_layers: Scalar = positive("transformer layers", symbol="L")
    hidden: Scalar = positive("hidden size", symbol="h")
    n_heads: Scalar = positive("query heads", symbol="a")
    n_kv_heads: Scalar = positive("key/value heads", symbol="g")
    head_dim: Scalar = positive("head size", symbol="d")
    ffn_hidden: Scalar = positive("width of a feed-forward up projection", symbol="f")
    gated: Scalar = share("gated feed-forward, three matrices: 1 yes")
    vocab: Scalar = positive("vocabulary size", symbol="V")
    tied_embeddings: Scalar = share("shared input and output embeddings: 1 yes")
    learned_positions: Scalar = share("learned positions, seq_len x hidden: 1 yes")
    rotary: Scalar = share("rotary positions (RoPE): 1 yes")
    scaled_rotary: Scalar | None = yes_or_no(
        "rotary positions scaled by YaRN's attention factor: 1 yes", default=None, absent=0.0
    )
    relative_positions: Scalar = share("relative positions in every layer (Transformer-XL): 1 yes")
    dropout: Scalar = share("dropout: 1 yes")
    parallel_block: Scalar | None = yes_or_no(
        "attention and feed-forward in parallel (GPT-J, PaLM): 1 yes", default=None, absent=0.0
    )
    norm_vectors: Scalar = number("weight vectors per norm: 1 scale, 2 with a shift", default=1.0)
    window: Scalar = positive("attention window of the local layers, tokens", symbol="w")
    local_layers: Scalar = share("share of layers with local (windowed) attention")
    seq_len: Scalar = positive("sequence length, tokens", symbol="s")
    global_batch: Scalar = positive("sequences per step, all devices", symbol="B")
    run_tokens: Scalar = positive("tokens of a training run", default=300e9)
    backward: Scalar = yes_or_no("1 training, 0 forward pass only", default=1.0)
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
