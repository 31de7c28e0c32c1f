"""Scripts are followed as a shell would, as far as their own text says, and nothing is executed."""

from __future__ import annotations

import time

import pytest

from dse.errors import InputError
from dse.tools.shell import script, whole_number

#: Script → words of its last command.
WORDS = {
    "A=1; B=${A}2; x $B": ["x", "12"],
    "x ${N:-8} ${M:=4}": ["x", "8", "4"],
    "N=2; x ${N:-8} ${N:+yes}": ["x", "2", "yes"],
    "N=8; G=4; x $((N * G)) $((${N} / G)) $(( N % 3 ))": ["x", "32", "2", "2"],
    "x $(expr 2 \\* 3)": ["x", "6"],
    "O='--a 1 --b 2'; x $O": ["x", "--a", "1", "--b", "2"],
    'O="--a 1"; x "$O"': ["x", "--a 1"],
    "x '$O'": ["x", "$O"],
    "A=(--a 1); A+=(--b 2); x ${A[@]}": ["x", "--a", "1", "--b", "2"],
    'A=("--a" "b c"); x "${A[@]}"': ["x", "--a", "b c"],
    "A=(--a 1  # why\n --b 2\n); x ${A[@]}": ["x", "--a", "1", "--b", "2"],
    "O=$(cat <<EOF\n--a 1\n--b 2\nEOF\n); x $O": ["x", "--a", "1", "--b", "2"],
    "O='--a\n1'; x \"${O//$'\\n'/ }\"": ["x", "--a 1"],
    "F=a.b.c; x ${F%.*} ${F##*.} ${F/b/d}": ["x", "a.b", "c", "a.d.c"],
    "if [ a = b ]; then O=1; elif [[ a == a ]]; then O=2; else O=3; fi; x $O": ["x", "2"],
    'T=4; if [ $T -gt 2 ] && [ -n "$T" ]; then x big; else x small; fi': ["x", "big"],
    "if [ -f /etc/passwd ]; then O=file; fi; x ${O:-none}": ["x", "none"],
    "M=7B; case $M in 7B|8B) L=32;; *) L=80;; esac; x $L": ["x", "32"],
    "for c in 4 8 16; do x $c; done": ["x", "4"],
    "A=1 B=2 x --a $Z": ["x", "--a", "${Z}"],
    "x `date` $(hostname)": ["x", "${command}", "${command}"],
    "x --a 1 2>&1 | tee log; x --b > out.txt": ["x", "--b"],
    "x --a \\\n  1  # a comment\n": ["x", "--a", "1"],
    "export A=3\nlocal B=$A\nx $B": ["x", "3"],
}


@pytest.mark.parametrize("text", WORDS, ids=range(len(WORDS)))
def test_words_are_those_of_a_shell(text):
    assert script(text).commands[-1].words == WORDS[text]


def test_heredocs_are_files_and_scripts():
    commands = script("N=8\ncat > c.yml <<EOF\ntp: $N\nEOF\ncat > d.yml <<'EOF'\ntp: $N\nEOF\n").commands
    assert [(command.target, command.text) for command in commands] == [("c.yml", "tp: 8\n"), ("d.yml", "tp: $N\n")]


def test_directives_of_schedulers_are_words():
    assert script("#!/bin/bash\n#SBATCH --nodes=4 --gres=gpu:8\n").directives == ["--nodes=4", "--gres=gpu:8"]


@pytest.mark.parametrize("text", ["x 'a", 'x "a', "x $(a", "A=(1 2", "x ${a"])
def test_open_quotations_are_refused(text):
    with pytest.raises(InputError):
        script(text)


def test_no_script_grows_without_end():
    """Doubled values, and loops within loops, end in an error or in a bounded script."""
    start = time.perf_counter()
    for text in ("A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 60 + "x $A", "x " + "$(" * 2000 + ")" * 2000):
        with pytest.raises(InputError):
            script(text)
    assert time.perf_counter() - start < 2.0


@pytest.mark.parametrize(("text", "number"), [("2+3*4", 14), ("(2+3)*4", 20), ("7/2", 3), ("-4", -4), ("2**9", None)])
def test_arithmetic_is_of_whole_numbers(text, number):
    assert whole_number(text) == number


def test_arithmetic_evaluates_no_names():
    assert whole_number("__import__('os')") is None
    assert whole_number("9" * 400 + "*" + "9" * 400) is None


def test_conditions_that_are_open_are_told():
    text = 'if [ -f /etc/x ]; then A=1; fi\nif [ $N -gt 1 ]; then B=1; fi\nif [ -n "$N" ]; then C=1; fi\nx'
    assert list(script(text).conditions) == ["[ -f /etc/x ]", "[ ${N} -gt 1 ]"]
    assert list(script("N=2; if [ $N = 2 ]; then x; fi").conditions) == []
