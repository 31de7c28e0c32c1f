"""The spaces of the suite: their names, from small to large, and their specifications."""

from __future__ import annotations

from pathlib import Path

from dse.spec import SearchSpec, search as specs

_FOLDER = Path(__file__).parent / "spaces"


def names() -> tuple[str, ...]:
    """The spaces, those of one objective first, each kind from small to large."""
    return (
        "gpt3_selene",
        "megatron_1t_eos",
        "memory_tight",
        "power_llama3",
        "delay_gpt3",
        "technology_gpt3",
        "billion_megatron",
        "front_time_memory",
        "front_time_power",
    )


def path(name: str) -> Path:
    """The specification of a space: a sweep, which a search of the same space is too."""
    return _FOLDER / f"{name}.toml"


def search_spec(name: str, methods: tuple[str, ...], seeds: int) -> SearchSpec:
    """The specification of a space with methods and a number of seeds."""
    return with_methods(path(name).read_text(encoding="utf-8"), path(name), methods, seeds)


def with_methods(text: str, file: Path, methods: tuple[str, ...], seeds: int) -> SearchSpec:
    """The specification of a sweep's text with methods and a number of seeds."""
    listed = ", ".join(f'"{method}"' for method in methods)
    return specs.from_text(f"{text}\n[search]\nmethod = [{listed}]\nseeds = {seeds}\n", str(file))
