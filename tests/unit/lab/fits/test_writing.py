"""The one writer of fitted values: what is not fitted stays to the byte, comments and order included."""

from __future__ import annotations

import shutil
import tomllib

import pytest
import tomlkit

from dse.designs import catalog
from dse.errors import InputError
from dse.lab.fits.writing import catalog_file, digits, document, number, quoted, revise, value_table

TEXT = """\
# a chip
name = "A chip"  # its name

[power]  # fitted
threshold = { value = 0.3, spread = 0.1 }  # volts
old = 1

[node]  # not fitted
scale_up = "nvlink-3"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "chip.toml"
    path.write_text(TEXT)
    return path


def test_comments_and_order_stay(file):
    revise(file, {"threshold": value_table("0.25", 0.084)}, "power")
    assert file.read_text() == TEXT.replace("{ value = 0.3, spread = 0.1 }", "{ value = 0.25, spread = 0.084 }")


def test_a_new_value_comes_last_in_its_table_and_a_new_table_last_in_the_file(file):
    revise(file, {"control": '"80 W"'}, "power")
    revise(file, {"source": quoted('a "quoted" word'), "launch": number(7e-6, "s")}, "alone")
    revise(file, {"residual": "0.04"})
    text = file.read_text()
    assert 'old = 1\ncontrol = "80 W"\n\n[node]' in text
    assert text.endswith('scale_up = "nvlink-3"\n\n[alone]\nsource = "a \\"quoted\\" word"\nlaunch = "7 us"\n')
    assert tomllib.loads(text)["residual"] == 0.04 and text.startswith('# a chip\nname = "A chip"  # its name\n')


def test_what_is_no_longer_fitted_goes(file):
    revise(file, {"threshold": "0.2"}, "power", drop=("old", "never there"))
    assert tomllib.loads(file.read_text())["power"] == {"threshold": 0.2}
    revise(file, {"control": "1"}, "power", drop=None)
    assert tomllib.loads(file.read_text())["power"] == {"control": 1}


@pytest.mark.parametrize("kind", ["kernels", "software"])
def test_writing_back_what_the_catalogue_states_changes_nothing(kind, tmp_path):
    for slug in catalog.names(kind):
        path = tmp_path / f"{slug}.toml"
        shutil.copy(catalog_file(catalog.catalog_root(), kind, slug), path)
        before = path.read_text()
        whole = tomlkit.parse(before)
        tables = {name: inside for name, inside in whole.items() if isinstance(inside, tomlkit.items.Table)}
        revise(path, as_texts({name: value for name, value in whole.items() if name not in tables}))
        for name, inside in tables.items():
            revise(path, as_texts(inside), name, drop=None)
        assert path.read_text() == before, slug


def as_texts(values):
    return {name: tomlkit.item(value).as_string() for name, value in values.items()}


def test_a_document_is_toml():
    known = value_table("1", source="s", confidence="estimate")
    text = document({"": {"coverage": "0.8"}, "h200.fine": {"x": known}}, "made")
    assert text.startswith("# made\ncoverage = 0.8\n\n[h200.fine]\n")
    assert tomllib.loads(text)["h200"]["fine"]["x"] == {"value": 1, "source": "s", "confidence": "estimate"}


def test_an_entry_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        catalog_file(tmp_path, "kernels", "h200")


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (1234.5, "1234"), (9.999, "10"), (0.000123456, "0.000123")])
def test_digits_have_no_exponent(value, text):
    assert digits(value) == text
