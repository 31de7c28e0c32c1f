"""Tables of the reference on files: methods of search, schedule of co-design, default stacks."""

from __future__ import annotations

from docs.make.markdown import filed, table
from dse.designs import catalog
from dse.optimizers.driver import METHODS
from dse.spec.codesign import DescentSchedule
from dse.spec.search import BATCHES, METHOD_OPTIONS, MOST_A_STEP, OPTIMIZERS, SCHEDULES


def tables() -> dict[str, str]:
    """Return the tables by name."""
    return {"methods": _methods(), "schedule": _schedule(), "stacks": _stacks()}


# --- searches ---------------------------------------------------------------------------------------------

#: Option of a method → what it is.
OPTIONS = {
    "population": "designs evaluated in one step",
    "best_share": "share of the population whose members trials move towards",
    "starts": "designs side by side, one step each",
    "rate": "length of the first step along an axis from end to end, for Adam about a share of it",
    "guided": "share of the steps that follow the gradient; the rest is noise alone",
    "optimizer": f"chain of optax that steps follow: {', '.join(OPTIMIZERS)}",
    "schedule": f"of the temperature: {', '.join(SCHEDULES)}",
    "walkers": "chains side by side, one design each in one step",
    "temperature": "at the start, in logarithms of the objective",
    "steps": "steps of one cooling schedule, after which it restarts",
}


def _methods() -> str:
    rows = []
    for name, defaults in METHOD_OPTIONS.items():
        rows.append([f"`{name}`", "", "", METHODS[name].about])
        rows += [
            ["", f"`{option}`", value if isinstance(value, str) else f"{value:g}", OPTIONS[option]]
            for option, value in defaults.items()
        ]
    header = ("method", "option", "default", "what")
    whole = f"Whole numbers are 1 to {MOST_A_STEP:,} (`{'`, `'.join(BATCHES)}` are the designs of one step), "
    return f"{whole}other options are above 0.\n\n{table(header, rows, words=header)}"


#: Key of the schedule of a co-design → what it is.
SCHEDULE = {
    "starts": "starting points, spread over the bounds",
    "steps": "steps of every start",
    "seed": "of the starting points",
    "k": "mappings that enter the soft minimum of each workload",
    "rate": "first step of a variable, in its logarithm",
    "last_rate": "last one; in between they fall geometrically, as below",
    "temperature": "first temperature of the soft minimum, in logarithms of the objective",
    "last_temperature": "last one",
    "stiffness": "first weight of what is infeasible",
    "last_stiffness": "last one",
}


def _schedule() -> str:
    defaults = {name: field.default for name, field in DescentSchedule.model_fields.items()}
    rows = [[f"`{name}`", f"{value:g}", SCHEDULE[name]] for name, value in defaults.items()]
    header = ("key", "default", "what")
    return table(header, rows, words=header)


# --- stacks -----------------------------------------------------------------------------------------------

#: Kind of model → a workload of that kind.
MODEL_KINDS = {"dense": "llama-3-8b", "mixture of experts": "deepseek-v3"}


def default_stacks() -> dict[str, tuple[str, ...]]:
    """System or accelerator → its stacks: training by kind of model, then the engine that serves."""
    return {
        slug: (
            *(catalog.default_software(slug, workload=model) for model in MODEL_KINDS.values()),
            catalog.default_software(slug, serving=True),
        )
        for slug in sorted({*catalog.names("system"), *catalog.names("accelerator")})
    }


def _stacks() -> str:
    alike: dict[tuple[str, ...], list[str]] = {}
    for slug, stacks in default_stacks().items():
        alike.setdefault(stacks, []).append(slug)
    header = ("system or accelerator", *MODEL_KINDS, "serving")
    return filed("reference_stacks", header, [[", ".join(slugs), *stacks] for stacks, slugs in alike.items()])
