"""What a result says must be cited."""

import re

from dse.sweep.results.provenance import bibliography


def test_every_entry_is_whole_and_named_once():
    text = bibliography([("system", "selene"), ("workload", "megatron-1t"), ("system", "selene")])
    keys = re.findall(r"^@\w+\{([^,]+),$", text, flags=re.MULTILINE)
    assert len(keys) == len(set(keys))
    assert {"korthikanti2022", "narayanan2021", "system-selene", "workload-megatron-1t"} <= set(keys)
    assert text.count("{") == text.count("}")


def test_sources_come_with_their_confidence():
    assert "(datasheet)" in bibliography([("accelerator", "a100-sxm-80gb")])
