"""Answers of ``dse read`` to the cases of the corpus."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.recipes import Answer
from dse.capabilities.recipes import RecipeDesign, parameter_counts, read_recipe
from dse.designs import accelerator_of, leaf, leaf_path, leaf_value, leaves_of, short_name
from dse.errors import InputError
from dse.types import Design, Precision, choice_name
from dse.views.explanation import infeasibility_reasons
from dse.views.sections import reason_lines

#: Values of leaves of which a design without a record has none.
_ABSENT = {"ep": 1.0, "etp": 1.0, "redundant_experts": 0.0}

#: Bytes of a weight with its scales, of formats.
_FORMAT_BYTES = {
    "fp8": 1.0,
    "fp8-block": 1.0,
    "fp8-row": 1.0,
    "mxfp8": 1.03125,
    "int8": 1.0,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
}


def value_of(name: str, value: Any) -> float:
    """Return the number of a leaf, or of a count that is none, from a number or a word."""
    try:
        path = leaf_path(name)
    except InputError:
        return float(value) if not isinstance(value, str) else math.nan
    return float(leaf_value(path, value))


def answer(case: Mapping[str, Any], completes: bool = True) -> Answer:
    """Return what ``dse read`` says of a case, with nothing else said than the files and a role.

    Args:
        case: of the corpus.
        completes: whether leaves that the files leave open have the value of the whole design.
    """
    texts = {path.name: path.read_text(encoding="utf-8") for path in case["files"]}
    try:
        recipe = read_recipe(texts, role=case.get("role", ""))
        is_model = recipe.model is not None and recipe.reading is None
        total, active = parameter_counts(recipe.model) if is_model and completes else (None, None)
    except InputError as error:
        return Answer(error=str(error))
    if recipe.reading is None:
        model = recipe.model
        numbers = {name.rpartition(".")[2]: value for name, value in model.fields.items() if not isinstance(value, str)}
        counts = {"parameters": total, "active_parameters": active} if completes else {}
        return Answer(
            values={name: float(value) for name, value in (numbers | counts).items()},
            complete=_completed(texts, recipe, case) if completes else _nothing,
            named=" ".join((*model.remarks, *model.silent, *model.unread)),
        )
    reading = recipe.reading
    identity = {
        "model": reading.workload,
        "chip": accelerator_of(reading.system) if reading.system else None,
        "n_devices": reading.devices.total,
    }
    if completes and case["kind"] == "refused" and (reasons := _reasons(recipe)):
        return Answer(error=reasons)
    named = [option.option for option in reading.options if option.status in ("not modelled", "unknown")]
    return Answer(
        identity=identity,
        values=reading.settings | {short_name(path): value for path, value in reading.shape.items()},
        complete=_completed(texts, recipe, case) if completes else _nothing,
        named=" ".join((*named, *reading.notes, *reading.missing)),
        read=" ".join(option.option for option in reading.options if option.status == "stated" and not option.moves),
    )


def _nothing(name: str) -> None:
    """Give no value of a leaf."""


def _completed(
    texts: Mapping[str, str], recipe: RecipeDesign, case: Mapping[str, Any]
) -> Callable[[str], float | None]:
    """Return the function from a leaf's name to its value in the design, where the files leave it open.

    What the files do not say is completed by the case: model, chip and devices.
    """
    reading = recipe.reading
    if reading is None:
        whole = dataclasses.replace(recipe, system="h100-sxm-80gb")
        with whole.named_workload() as name:
            return _values_of(whole.request(name).design, serves=True)
    is_named = reading.workload or reading.fields[0] or recipe.model
    try:
        whole = read_recipe(
            texts,
            workload="" if is_named else case["model"] or "llama-3-1-70b",
            system=reading.system or case["chip"] or "h100-sxm-80gb",
            n_devices=reading.devices.total or case.get("n_devices"),
            role=case.get("role", ""),
        )
        with whole.named_workload() as name:
            design = whole.request(name).design
    except InputError:
        return lambda name: None
    return _values_of(design, case["kind"] == "serving")


def _values_of(design: Design, serves: bool) -> Callable[[str], float | None]:
    """Return the function from a leaf's name to its value in a design."""
    paths = set(leaves_of(design))

    def value(name: str) -> float | None:
        path = leaf_path(name, serving=serves)
        found = leaf(design, path) if path in paths else None
        if name in ("weight_bytes", "expert_bytes") and not found:  # as the format says
            return _FORMAT_BYTES.get(choice_name(Precision(int(design.mapping.precision))), 2.0)
        return _ABSENT.get(name, 0.0) if found is None else float(found)

    return value


def _reasons(recipe: RecipeDesign) -> str:
    """Return why the design of a recipe cannot run, "" where it can or cannot be completed."""
    whole = dataclasses.replace(recipe, system=recipe.system or "h100-sxm-80gb")
    if whole.missing:
        return ""
    with whole.named_workload() as name:
        try:
            request = whole.request(name)
        except InputError as error:
            return str(error)
        reasons = infeasibility_reasons(request.design, request.study)
    return " ".join(reason.text for reason in reason_lines(reasons))
