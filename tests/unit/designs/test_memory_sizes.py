"""Memory sizes of accelerators: what their drivers show and leave to programs, not what they are sold as."""

import pytest

import dse
from dse import types
from dse.designs import catalog
from dse.errors import InputError

MIB, GIB = 2.0**20, 2.0**30

#: Total memory in MiB that nvidia-smi (rocm-smi, hl-smi) shows, and total memory in GiB that CUDA leaves to programs
#: ("GPU 0 has a total capacity of 79.10 GiB", an error of PyTorch) or XLA names ("Used 33.57G of 30.75G hbm"): listings
#: and errors that users publish, looked up anew for this table. 0: not found, or no other than the total.
SHOWN = {
    "p100-pcie-16gb": (16384, 15.89),
    "v100-pcie-16gb": (16384, 15.77), "v100-sxm-16gb": (16384, 15.77),
    "v100-pcie-32gb": (32768, 31.73), "v100-sxm-32gb": (32768, 31.73),
    "a30": (24576, 0.0), "a40": (46068, 44.34),
    "a100-pcie-40gb": (40960, 39.39), "a100-sxm-40gb": (40960, 39.39),
    "a100-pcie-80gb": (81920, 79.15), "a100-sxm-80gb": (81920, 79.15), "a800-sxm-80gb": (81920, 79.15),
    "h100-sxm-80gb": (81559, 79.10), "h100-pcie-80gb": (81559, 79.10), "h800-sxm-80gb": (81559, 79.10),
    "h100-nvl-94gb": (95830, 93.10), "h100-sxm-96gb-hbm2e": (97871, 95.00), "h20-96gb": (97871, 95.00),
    "gh200-96gb": (97871, 94.50), "gh200-144gb": (0, 153_008_209_920 / GIB), "h200-sxm-141gb": (143771, 139.80),
    "b200-sxm-180gb": (183359, 178.35), "gb200-nvl72": (189471, 184.31),
    "b300-sxm-288gb": (275040, 267.69), "gb300-nvl72": (284208, 276.50),
    "l4": (23034, 22.03), "l40s": (46068, 44.39), "rtx-4090": (24564, 23.64), "rtx-pro-6000-server": (97887, 94.97),
    "mi210": (65520, 63.98), "mi250x-gcd": (65520, 63.98), "mi300x": (196592, 191.98), "mi325x": (262128, 255.98),
    "mi350x": (294896, 287.98), "mi355x": (294896, 287.98),
    "gaudi-2": (98304, 94.62), "gaudi-3": (131072, 0.0),
    "tpu-v2": (0, 2 * 7.48), "tpu-v3": (0, 2 * 15.48), "tpu-v4": (0, 30.75), "tpu-v5e": (0, 15.75),
    "tpu-v5p": (0, 95.74), "tpu-v6e": (0, 31.25), "tpu-v7-ironwood": (0, 2 * 94.75),
}  # fmt: skip

#: Of which nobody publishes what a tool shows → why: a module of two listed dies, chips that are announced or were not
#: sold, whose makers state GiB, that have no such memory, or that are made up.
NOT_SHOWN = {
    "mi250x-module": "two GCDs", "ascend-910c": "two dies", "b100": "not sold", "rubin-r200": "announced",
    "mi455x": "announced", "trainium-1": "states GiB", "trainium-2": "states GiB", "trainium-3": "states GiB",
    "groq-lpu-v1": "SRAM", "wse-3": "SRAM", "calculon-a100-80e": "of Calculon", "calculon-a100-80g": "of Calculon",
    "calculon-h100-80g-nvl8": "of Calculon",
}  # fmt: skip

STATED = [slug for slug in catalog.names("accelerator") if not catalog.entry("accelerator", slug).states("chip")]


def test_every_accelerator_is_in_the_table():
    """A new one needs a line: what its tool shows, or why nobody knows."""
    assert sorted(STATED) == sorted([*SHOWN, *NOT_SHOWN])


@pytest.mark.parametrize("slug", sorted(SHOWN))
def test_sizes_are_those_that_drivers_show_and_leave(slug):
    found, (total, usable) = catalog.entry("accelerator", slug), SHOWN[slug]
    capacity, left = found.value("memory.capacity"), found.value("memory.usable", found.value("memory.capacity"))
    if total:
        assert capacity == total * MIB
    if usable:
        assert left == pytest.approx(usable * GIB, rel=2e-4)
    assert catalog.record(types.Accelerator, slug).memory.capacity == left


@pytest.mark.parametrize("slug", STATED)
def test_what_is_left_is_nearly_all_and_no_more(slug):
    """Drivers and firmware keep 0.4 to 6.5 % (TPU v2); the rest is that of designs."""
    found = catalog.entry("accelerator", slug)
    capacity = found.value("memory.capacity")
    assert 0.93 * capacity < found.value("memory.usable", capacity) <= capacity


def test_what_is_sold_as_gb_is_gib_or_more_than_that_in_bytes():
    """No card has fewer bytes than it is sold with, but for those with ECC in memory: 46,068 MiB of 48 GB."""
    for slug in STATED:
        sold = [float(word[:-2]) for word in slug.split("-") if word.endswith("gb") and word[:-2].isdigit()]
        if sold and not slug.startswith("calculon"):
            assert catalog.entry("accelerator", slug).value("memory.capacity") > 1e9 * sold[0]


def test_a_design_has_what_cuda_leaves():
    """Of 81,559 MiB of an H100 79.1 GiB; a stack keeps its reserve of them."""
    design = dse.design("llama-3-8b", "h100")
    assert float(design.system.accelerator.memory.capacity) == pytest.approx(79.1 * GIB)


def test_the_480_gb_of_a_grace_hopper_are_those_of_its_processor():
    small, large = (catalog.record(types.Accelerator, name).memory for name in ("GH200-480GB", "gh200-144gb"))
    assert catalog.resolve("accelerator", "NVIDIA GH200 480GB") == "gh200-96gb"
    assert (float(small.bandwidth), float(large.bandwidth)) == (4.0e12, 4.9e12)
    assert float(large.capacity) / float(small.capacity) == pytest.approx(142.5 / 94.5)
    assert catalog.entry("accelerator", "gh200-96gb").value("node.host_memory") == 480e9


def test_more_usable_than_there_is_is_refused(tmp_path):
    folder = tmp_path / "accelerators"
    folder.mkdir()
    (folder / "odd.toml").write_text(
        'source = "x"\nconfidence = "estimate"\n[matrix_rate]\nbf16 = "1 TFLOP/s"\n'
        '[memory]\ncapacity = "80 GB"\nusable = "80 GiB"\nbandwidth = "1 TB/s"\n'
    )
    with pytest.raises(InputError) as error:
        catalog.entry("accelerator", "odd", folder=tmp_path)
    assert error.value.where.endswith("odd.toml: memory.usable") and "80 GB (capacity) or less" in error.value.allowed
