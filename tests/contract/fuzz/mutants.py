"""Documents made wrong: one or a few random changes of a text that was right.

Changes are those that people make by accident (a line lost, a key misspelt, a unit forgotten, a column missing, a file
cut short) and those that an attacker tries (numbers without end, nesting without end, code in an expression).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from dse.errors import InputError

#: Values, as TOML writes them, that no place of a document is glad of.
TOML_VALUES = (
    "0", "-1", "1e300", "-1e300", "1e-300", "inf", "-inf", "nan", "true", "false", '""', '" "', "[]", "{}", "[[]]",
    "[[1], [2]]", "[1, [2]]", "{ a = 1 }", "[true]", "[false, 1]", '[1, "two"]', "['']", "1979-05-27", "07:32:00",
    "9" * 400, "-" + "9" * 400, f"1{'0' * 30}", "0.1", "1e18", "9223372036854775808", "0x7fffffffffffffff",
    '"9**9**9 B"', '"1 GB + 2 GB"', '"1e400 B"', f'"{"9" * 5000} B"', '"-5 GB"', '"400 Gb/s"', '"80"', '"GB"',
    '"nan B"', '"inf B/s"', '"1 furlong"', '"µ"', '"\\u0000"', '"\\n"', '"../../etc/passwd"', '"/dev/zero"', '"$HOME"',
    '"divisors"', '"powers_of_two"', '"none"', '"full"', '"tp"', '"step_time"', '"h100"', '"eos"',
    "{ from = 1, to = 0, step = 1 }", "{ from = 1, to = 1e300, step = 1e-300 }", "{ from = 1, to = 64, factor = 1 }",
    "{ from = 1, to = 64, factor = 1.0000000001 }", "{ from = 1, to = 64 }", "{ from = 0, to = 64, factor = 2 }",
    "{ from = 1, to = 64, count = 1000000 }", "{ from = 1, to = 64, count = -1 }", "{ from = 1, to = 2, by = 3 }",
    "{ from = 'a', to = 'b', step = 1 }", "{ from = 1, to = 2, continuous = true }",
    "{ from = [], to = {}, count = 2}",
    "[" * 1000 + "]" * 1000, "{a=" * 300 + "1" + "}" * 300, f"[{', '.join(map(str, range(3000)))}]",
)  # fmt: skip

#: Texts that are no expression, or should not be one.
EXPRESSIONS = (
    "__import__('os').system('touch owned')", "().__class__.__bases__", "tp <= ", "tp <= 8 and", "tp ** 9 ** 9 ** 9",
    "lambda: 0", "[tp for tp in tp]", "tp if tp else tp", "open('x')", "tp()", "tp[0]", "f'{tp}'", "(tp := 3)", "1 / 0",
    "tp / 0 < 1", "-(tp < 8)", "-tp < -8", "not tp", "--tp < 3", "tp < 'x'", "'x' < 'y'", "tp < 1j", "tp == None",
    "...", "*tp", "tp.__class__", "tp < 8 < 9 < 'a'", "(" * 1000 + "tp" + ")" * 1000, "-" * 3000 + "tp < 1", "9" * 5000,
    "tp < " + "9" * 400, "tp < 1e400", "tp + " * 2000 + "tp < 1", "not " * 2000 + "tp < 1", "peak_memory < '80'",
    "peak_memory < '9**9**9 B'", "recompute == 'fulll'", "recompute == full", "tp < true", "tp\x00 < 3", "tp < 3 # x",
    "step_time", "nonsense", "a" * 10000, "tp;tp", "tp\n<\n8", "0 < 1", "True", "tp and pp", "mapping < 3", "é < 1",
)  # fmt: skip

#: Cells that no column of a table is glad of.
CELLS = (
    "", "nan", "inf", "-inf", "-1", "0", "1e300", "9" * 400, "abc", "1,5", "8 ", "0x10", "1e9", "8.5", "true", "\x00",
    "=cmd|'/c calc'!A0", '"', "'", "H100", "Llama-3-70B", "../../etc/passwd", "[1]", "é", "١٢", "1_000", "tp", "1e-300",
)  # fmt: skip

#: Values, as a command line has them, for any leaf.
SETTINGS = (
    *CELLS,
    "1e300",
    "-1e300",
    "1e-300",
    "9**9**9 B",
    "9" * 5000,
    "80",
    "80 GB",
    "80 GiB",
    "5 us",
    "full",
    "on",
    "False",
    "400 Gb/s",
    "1 GB/s/s",
    "1e5 s",
    "[1]",
    "{}",
    "0.5",
    "2.5",
    "1e24",
    "1e-24",
    "1e12",
    "16777217",
)

_ASSIGNMENT = re.compile(r"^(\s*\"?[\w.\-]+\"?\s*=\s*)(.+)$")

Change = Callable[[str, random.Random], str]


def quoted(text: str) -> str:
    """A text as it stands between the quotes of TOML."""
    return "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or c in '\\"' else c for c in text)


def _lines(change: Callable[[list[str], int, random.Random], None]) -> Change:
    """A change of one line of a text."""

    def apply(text: str, rng: random.Random) -> str:
        lines = text.split("\n")
        change(lines, rng.randrange(len(lines)), rng)
        return "\n".join(lines)

    return apply


def _value(lines: list[str], _: int, rng: random.Random) -> None:
    """Another value for a key."""
    assigned = [(n, match) for n, line in enumerate(lines) if (match := _ASSIGNMENT.match(line))]
    if assigned:
        number, match = rng.choice(assigned)
        lines[number] = match[1] + rng.choice(TOML_VALUES)


def _expression(lines: list[str], _: int, rng: random.Random) -> None:
    """An expression where constraints and objectives stand, or such a section."""
    text = quoted(rng.choice(EXPRESSIONS))
    if rng.random() < 0.5:
        lines.append(f'[constraints]\nall = ["{text}"]')
        return
    for number, line in enumerate(lines):
        if line.startswith(("minimize", "maximize", "all")):
            lines[number] = f'{line.partition("=")[0]}= "{text}"'


def _drop(lines: list[str], at: int, _: random.Random) -> None:
    del lines[at]


def _double(lines: list[str], at: int, _: random.Random) -> None:
    lines.insert(at, lines[at])


def _misspell(lines: list[str], at: int, rng: random.Random) -> None:
    """Two letters of a line change places."""
    line = lines[at]
    if len(line) > 2:
        cut = rng.randrange(len(line) - 1)
        lines[at] = line[:cut] + line[cut + 1] + line[cut] + line[cut + 2 :]


def _swap(lines: list[str], at: int, rng: random.Random) -> None:
    other = rng.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


def _unit(lines: list[str], at: int, rng: random.Random) -> None:
    """A unit lost or another one."""
    unit = rng.choice(["", "GB", "s", "Gb/s", "W", "mm2", "%", "x"])
    lines[at] = re.sub(r"(\d) ?[A-Za-z/]+\d?\"", rf'\1 {unit}"', lines[at])


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _noise(text: str, rng: random.Random) -> str:
    """Random characters, control ones too, somewhere."""
    at = rng.randrange(len(text) + 1)
    characters = list(map(chr, (0, 7, 9, 10, 13, 27, 34, 39, 61, 91, 93, 123, 0x202E, 0xFEFF, 0x1F600)))
    return text[:at] + "".join(rng.choices(characters, k=4)) + text[at:]


def _cell(text: str, rng: random.Random) -> str:
    """Another cell in a table."""
    rows = [line.split(",") for line in text.split("\n")]
    row = rng.choice([r for r in rows if len(r) > 1] or rows)
    row[rng.randrange(len(row))] = rng.choice(CELLS)
    return "\n".join(map(",".join, rows))


def _column(text: str, rng: random.Random) -> str:
    """A column lost, of the header alone or of all rows."""
    rows = [line.split(",") for line in text.split("\n")]
    at = rng.randrange(len(rows[0]))
    for row in rows[: 1 if rng.random() < 0.3 else None]:
        if at < len(row):
            del row[at]
    return "\n".join(map(",".join, rows))


def of_settings(_: str, rng: random.Random) -> str:
    """Settings of one to four leaves of a design."""
    from dse.designs import all_leaves
    from dse.designs.leaves import path_endings

    def one() -> str:
        path = rng.choice(list(all_leaves()))
        return f"{rng.choice(path_endings(path))}={rng.choice(SETTINGS)}"

    return "\n".join(one() for _ in range(rng.randint(1, 4)))


_COMMON: tuple[Change, ...] = (*map(_lines, (_drop, _double, _misspell, _swap)), _cut, _noise)
_OF_TOML: tuple[Change, ...] = (*map(_lines, (_value, _value, _value, _value, _expression, _unit)), *_COMMON)
_OF_TABLE: tuple[Change, ...] = (_cell, _cell, _cell, _cell, _column, _column, *_COMMON)


def of_toml(text: str, rng: random.Random) -> str:
    """A TOML document with one to three changes."""
    return _changed(text, _OF_TOML, rng)


def of_table(text: str, rng: random.Random) -> str:
    """A CSV table with one to three changes."""
    return _changed(text, _OF_TABLE, rng)


def _word(text: str, rng: random.Random) -> str:
    """Another word, a word lost, doubled or in another place."""
    words = text.split(" ")
    at = rng.randrange(len(words))
    value = rng.choice((*CELLS, *WORDS, *words))
    words[at : at + 1] = rng.choice(([value], [], [words[at]] * 2, [value, words[at]], [words[at] * 50]))
    return " ".join(words)


#: Words of command lines that no tool has, or a shell would have replaced.
WORDS = (
    "--",
    "-",
    "=",
    "--=",
    "${TP}",
    "$(reboot)",
    "`ls`",
    "(",
    ")",
    "'",
    "\\",
    "-tp",
    "--tp",
    "+a=1",
    "a=",
    "=1",
    "8,",
    "1e999",
    "-1",
    "0",
    "nan",
    "[1,2]",
    "--tensor-model-parallel-size",
    "--hidden-size",
    "--num-query-groups",
    "#",
)


def of_arguments(text: str, rng: random.Random) -> str:
    """A command line with one to three changes."""
    return _changed(text, (_word, _word, _word, _word, *_COMMON), rng)


def _changed(text: str, changes: tuple[Change, ...], rng: random.Random) -> str:
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = rng.choice(changes)(text, rng)
    return text


def error_of(take: Callable[[], None]) -> str:
    """What is wrong with how an input is taken: a traceback, or an error without its four parts; "" for nothing."""
    try:
        take()
    except InputError as error:
        if not all((error.where, error.got, error.allowed, error.fix)) or len(str(error)) > 4000:
            return f"an error without four parts: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
