"""Recipes as designs: files, the options of a command that complete them, and the design of both."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dse.capabilities.designs import DesignOptions, DesignRequest
from dse.capabilities.settings import leaf_setting

if TYPE_CHECKING:
    from dse.designs.catalog.huggingface import ModelConfig
    from dse.tools import RecipeReading

#: Kind of designs of a configuration of a model without a recipe.
_SERVING = "serving"


@dataclasses.dataclass(frozen=True)
class RecipeDesign:
    """A run as files state it, with what options of a command add."""

    reading: RecipeReading | None  #: of the files of a tool; None for configurations of models alone
    model: ModelConfig | None  #: of a config.json among the files
    model_name: str  #: of that file, or of its folder
    workload: str  #: in the catalogue, "" where files state the model by its shape or not at all
    system: str  #: system or accelerator of the catalogue, "" for none
    n_devices: int | None

    @property
    def study(self) -> str:
        """Name of the study of its design."""
        return self.reading.tool.study if self.reading else _SERVING

    @property
    def missing(self) -> list[str]:
        """What has to be added before the design can be evaluated."""
        if self.reading is None:
            return [] if self.system else ["name the system or the accelerator: -s NAME"]
        texts = self.reading.missing
        return texts if self.model is None else [text for text in texts if not text.startswith("name the model")]

    @contextlib.contextmanager
    def named_workload(self) -> Iterator[str]:
        """Give the name of the workload: of the catalogue, else of a configuration or a shape, within the context."""
        from dse.tools.models import workload_of

        if self.model is None and self.workload:
            yield self.workload
            return
        fields = dict(self.model.fields) if self.model else self.reading.fields[0] if self.reading else {}
        with workload_of(fields, self.model_name or (self.reading.model_text if self.reading else "")) as name:
            yield name

    def request(self, name: str, texts: Sequence[str] = (), software: str | None = None) -> DesignRequest:
        """Return the design.

        Args:
            name: of its workload in the catalogue.
            texts: settings ``NAME=VALUE``, which count before those of the files.
            software: stack, by default that of the tool.
        """
        from dse import tools
        from dse.designs import leaf_path, leaf_value, short_name
        from dse.doors import STUDIES

        study, reading = STUDIES[self.study], self.reading
        set_paths = {leaf_path(text.partition("=")[0].strip(), "--set", self.study == _SERVING) for text in texts}
        formats = (
            self.model.checkpoint.leaves() if self.model and self.model.checkpoint and self.study == _SERVING else {}
        )
        values = {leaf_path(leaf): leaf_value(leaf_path(leaf), value) for leaf, value in formats.items()}
        values |= dict(reading.values) | self._other_shape() if reading else {}

        if reading is None and self.n_devices:  # of a configuration alone, all devices are one engine
            values["mapping.tp"] = float(self.n_devices)

        def request(values: Mapping[str, float]) -> DesignRequest:
            settings = {path: value for path, value in values.items() if path not in set_paths}
            options = DesignOptions(
                workload=name,
                system=self.system,
                settings=[*(f"{short_name(path)}={leaf_setting(path, v)}" for path, v in settings.items()), *texts],
                n_devices=self.n_devices if self.study != _SERVING else None,
                software=software,
                any_option=True,
            )
            return options.request(study, "", (reading.tool.stack_tool or reading.tool.name) if reading else "")

        first = request(values)
        if reading is None or not reading.design_dependent:
            return first
        return request(values | reading.shares(tools.design_lookup(first.design, name, self.system)))

    def _other_shape(self) -> dict[str, float]:
        """Return path → value of the leaves of a stated shape that differ from those of the named model."""
        from dse.designs import catalog
        from dse.types import Experts
        from dse.types.paths import leaves

        if not self.workload or self.reading is None or self.model is not None:
            return {}
        entry, defaults = catalog.entry("workload", self.workload), leaves(Experts, "workload.experts.")
        model_values = {path: entry.value(path.removeprefix("workload.")) for path in self.reading.shape}
        if entry.states("experts"):  # what a file leaves out of its experts has a default, as their capacity
            model_values |= {
                path: defaults[path]["default"]
                for path, value in model_values.items()
                if value is None and path in defaults
            }
        return {
            path: value
            for path, value in self.reading.shape.items()
            if model_values[path] is not None and float(model_values[path]) != value
        }


def read_recipe(
    texts: Mapping[str, str],
    tool: str = "",
    workload: str = "",
    system: str = "",
    n_devices: int | None = None,
    role: str = "",
) -> RecipeDesign:
    """Return the run that files state.

    Args:
        texts: name of a file → its text: of recipes, scripts, manifests, and configurations of models.
        tool: of the files; "" for the one that is recognised.
        workload: model in the catalogue; "" for the one that the files name.
        system: system or accelerator in the catalogue; "" for the one that the files name.
        n_devices: number of devices; None for the one that the files state.
        role: of a pool of engines.

    Raises:
        InputError: for files of no tool, and for what tool or model refuse.
    """
    from dse import tools
    from dse.designs.catalog.huggingface import parse, read_config

    configs = {name: text for name, text in texts.items() if is_model_config(text)}
    quantization = {name: text for name, text in texts.items() if name.endswith("hf_quant_config.json")}
    recipes = {name: text for name, text in texts.items() if name not in configs | quantization}
    model, model_name = None, ""
    for name, text in configs.items():
        formats = next(iter(quantization.values()), None)
        model = read_config(parse(text, name), name, parse(formats, "hf_quant_config.json") if formats else None)
        model_name = name.rpartition("/")[2].removesuffix(".json")
    if not recipes and not tool and model is not None:
        return RecipeDesign(None, model, model_name, "", system, n_devices)
    reading = tools.read_files(recipes, tool, workload, system, n_devices, role, has_model=model is not None)
    return RecipeDesign(reading, model, model_name, reading.workload or "", reading.system, reading.n_devices)


def is_model_config(text: str) -> bool:
    """True for the text of a ``config.json`` of a model."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and not document.keys() & _RECIPE_KEYS and bool(document.keys() & _MODEL_KEYS)


#: Keys of configurations of models, and of JSON that is a recipe.
_MODEL_KEYS = {
    "model_type",
    "architectures",
    "text_config",
    "num_hidden_layers",
    "hidden_size",
    "n_layer",
    "num_layers",
    "_class_name",
    "transformers_version",
}
_RECIPE_KEYS = {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "kind", "apiVersion"}


def parameter_counts(model: ModelConfig) -> tuple[float, float]:
    """Return (parameters without layers that draft, parameters that a token passes) of a model."""
    from dse.designs import design
    from dse.model import main_model, parameter_count
    from dse.tools.models import workload_of

    with workload_of(model.fields, "model") as name:
        shape = main_model(design(name, "h100-sxm-80gb").workload)
    total, experts = float(parameter_count(shape)), shape.experts
    if experts is None:
        return total, total
    passed = dataclasses.replace(experts, n_experts=float(experts.top_k))
    return total, float(parameter_count(dataclasses.replace(shape, experts=passed)))
