"""Small searches of the made-up model of the sweeps' tests."""

from dse.optimizers import problem
from dse.spec import search as spec
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES

CONTINUOUS = """
"memory.bandwidth" = { from = "1 TB/s", to = "3 TB/s", continuous = true }
"memory.capacity" = { from = "40 GiB", to = "80 GiB", continuous = true, log = false }
"""


def text(axes=MAPPING_AXES, *, search="", more="", system="n_devices = 16"):
    """Eight layers, eight heads, a batch of 32, on 16 devices unless ``axes`` say so."""
    shape = dict(n_layers=8, n_heads=8, n_kv_heads=8, ffn_hidden=1024, seq_len=64, global_batch=32)
    fixed = "\n".join(f"{name} = {value}" for name, value in shape.items() if name not in axes)
    return f"""
[workload]
name = "gpt-3-125m"
{fixed}
[system]
name = "selene"
{"" if "n_devices" in axes else system}
[software]
any_option = true
[axes]
{axes}
{more}
[search]
{search}
"""


def search(axes=MAPPING_AXES, **others):
    return spec.from_text(text(axes, **others))


def toy_problem(axes=MAPPING_AXES, **others):
    return problem.build(search(axes, **others), toy.STUDY)
