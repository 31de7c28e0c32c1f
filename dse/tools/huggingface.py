"""The Trainer of Transformers, and what is built on it: TRL, Accelerate, axolotl, LLaMA-Factory, torchtune.

Rules are those of :mod:`dse.tools.trainer`; other tools have the same ones by their own names (``sections`` of their
tables).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence

from dse.tools import deepspeed
from dse.tools.adapters import ADAPTERS, adapter_limit, adapter_remark
from dse.tools.options import CompositeOption, Lookup, OptionRule, Pairs, Tool
from dse.tools.rows import read_tool, table
from dse.tools.trainer import FILES, OPTIMISER, RULES, named_stage, names_nothing

# --- remarks ----------------------------------------------------------------------------------------------

_GENERATES = ("num_generations", "max_completion_length", "use_vllm", "ppo_epochs", "reward_model", "reward_funcs")


def _generation_remark(options: Mapping[str, str]) -> str:
    """Return the remark that generation is not read, "" for training on texts."""
    kind = options.get("rl", options.get("stage", "")).lower()
    if kind not in ("grpo", "ppo", "gdpo", "ebft") and not any(name in options for name in _GENERATES):
        return ""
    return "reinforcement learning: the trainer's part is read, generation and reward models are not (dse rl has them)"


def _reference_remark(options: Mapping[str, str]) -> str:
    """Return the remark that a reference model is not modelled, "" without one."""
    kind = options.get("rl", options.get("stage", "")).lower()
    if kind not in ("dpo", "kto", "ipo"):
        return ""
    return f"{kind}: two sequences of a pair and a reference model are not modelled: more time and memory"


def _optimiser_remark(options: Mapping[str, str]) -> str:
    """Return the remark that an optimiser is not modelled, "" for Adam."""
    name = options.get(OPTIMISER, "adamw")
    kind = name.lower().rpartition(".")[2]
    return (
        ""
        if kind.replace("paged_", "").replace("paged", "").startswith("adamw")
        else f"{OPTIMISER} {name}: Adam counts"
    )


def _file_remark(options: Mapping[str, str]) -> str:
    """Return the remark that a configuration is not among the files, "" where its values are or none is named."""
    names = [options[name] for name in FILES if not names_nothing(options.get(name, ""))]
    seen = (deepspeed.STAGE, "zero_stage", "fsdp_version", "fsdp_sharding_strategy")
    if not names or any(name in options for name in seen):
        return ""
    stage = named_stage(options)
    what = f"ZeRO {stage:g} is read from its name" if stage is not None else "what it says is unknown"
    return f"{names[0]} is not among the files: {what}; give it too"


def _recipe_limit(options: Mapping[str, str]) -> str:
    """Return that a configuration of torchtune is not among the files, "" where it is or none is named."""
    name = options.get("--config", "")
    if not name or "model._component_" in options:
        return ""
    return f"give {name} too: what it says is unknown"


# --- tools ------------------------------------------------------------------------------------------------


#: Options → a remark, "" for none.
Remark = Callable[[Mapping[str, str]], str]


class _Renamed(Mapping[str, str]):
    """Options of a tool by the names of the Trainer; ``!`` in front of a tool's name turns a switch round."""

    def __init__(self, options: Mapping[str, str], sections: Mapping[str, str]) -> None:
        self._options, self._sections = options, sections

    def __contains__(self, name: object) -> bool:
        return self._sections.get(str(name), str(name)).lstrip("!") in self._options

    def __getitem__(self, name: str) -> str:
        option = self._sections.get(name, name)
        text = self._options[option.lstrip("!")]
        return _turned(text) if option.startswith("!") else text

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        """Return the text of an option, ``default`` without it."""
        option = self._sections.get(name, name)
        text = self._options.get(option.lstrip("!"))
        return default if text is None else _turned(text) if option.startswith("!") else text

    def __iter__(self) -> Iterator[str]:
        names = {section.lstrip("!"): name for name, section in self._sections.items()}
        return (names.get(name, name) for name in self._options)

    def __len__(self) -> int:
        return len(self._options)


def _turned(text: str) -> str:
    """Return the text of a switch that is on where another one is off."""
    return "true" if text.strip().lower() in ("false", "0", "no") else "false"


def _renamed(tool: str, rule: OptionRule) -> OptionRule:
    """Return a rule of the Trainer with the names of another tool's options."""
    sections, words = table(tool).get("sections", {}), table(tool).get("words", {})

    def write(leaf: Lookup) -> Pairs | None:
        pairs = rule.write(leaf)
        if pairs is None:
            return None
        names = [(sections.get(name, name), words.get(text, text)) for name, text in pairs]
        return [(name.lstrip("!"), _turned(text) if name.startswith("!") else text) for name, text in names]

    writes_default = getattr(rule, "writes_default", False)
    return CompositeOption(rule.paths, write, lambda options: rule.read(_Renamed(options, sections)), writes_default)


def _inherited(tool: str, row: Mapping[str, Sequence[str]]) -> list[OptionRule]:
    """Return the Trainer's rules of the leaves of a row with the names of another tool's options."""
    rules = {rule.paths[0]: rule for rule in TRANSFORMERS.rules}
    return [_renamed(tool, rules[path]) for path in row["inherit"]]


def _trainer(
    name: str, code: Mapping[str, OptionRule] = types.MappingProxyType({}), limits: Sequence[Remark] = (adapter_limit,)
) -> Tool:
    """Return the tool of a table, which reads names of options with dashes and without."""
    document, base = table(name), table("transformers")
    sections = document.get("sections", {})
    own_names = {key: text for key, text in sections.items() if not text.startswith("!")}
    effects = {**base["effects"], **document["effects"]}
    models = (name for tool in (base, document) for name in tool["model_options"])
    names = {*document["defaults"], *effects, *base["options"], *models}
    names |= {text.lstrip("!") for text in sections.values()}
    names = {text for text in names if "*" not in text} - own_names.keys()
    aliases = own_names | base["aliases"] | document.get("aliases", {})
    aliases = {key: own_names.get(text, text) for key, text in aliases.items() if key not in names}
    spellings = {text: text for text in names} | aliases
    dashed = {f"--{key}": text for key, text in spellings.items()}
    dashed |= {f"--{key.replace('_', '-')}": text for key, text in spellings.items()}
    remarks = (_generation_remark, _reference_remark, _optimiser_remark, _file_remark, adapter_remark)
    return read_tool(
        name,
        code,
        functools.partial(_inherited, name),
        aliases=aliases | dashed,
        effects={spelling: moves for text, moves in effects.items() for spelling in (text, f"--{text}")},
        remarks=tuple(_of_tool(remark, sections) for remark in remarks),
        limits=tuple(_of_tool(limit, sections) for limit in limits),
    )


def _of_tool(remark: Remark, sections: Mapping[str, str]) -> Remark:
    """Return a remark on options by the Trainer's names as one on those of another tool."""
    return lambda options: remark(_Renamed(options, sections))


TRANSFORMERS = _trainer("transformers", RULES | {"adapters": ADAPTERS})
TRL, ACCELERATE, AXOLOTL = map(_trainer, ("trl", "accelerate", "axolotl"))
LLAMA_FACTORY, TORCHTUNE = _trainer("llama-factory"), _trainer("torchtune", limits=(adapter_limit, _recipe_limit))
