"""Words of shell scripts: variables, arrays, arithmetic, heredocs and plain conditions, without a process.

:func:`script` follows a script as a shell would, as far as its own text says: assignments, ``${X:-8}``, ``$((A * B))``,
arrays of options, ``$(cat <<EOF …)``, ``if [ … ]``, ``case``, ``for`` (first value). Nothing is executed: what would
need a process, a file or the environment stays in the words as ``${NAME}``, and is an open value.
"""

from __future__ import annotations

import ast
import fnmatch
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dse.errors import InputError

#: Maximum number of words of a script, with loops and arrays, and of characters of one value.
_MAX_WORDS, _MAX_CHARACTERS = 50_000, 100_000

#: Variables that launchers set to the rank of a node or a process: what the first of them does is read.
_RANKS = (
    "NODE_RANK", "RANK", "LOCAL_RANK", "GROUP_RANK", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID",
    "LWS_WORKER_INDEX", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "SKYPILOT_NODE_RANK",
    "JOB_COMPLETION_INDEX",
)  # fmt: skip

#: Maximum number of characters of a script.
_MAX_SCRIPT = 500_000

#: Maximum number of calls of the same functions.
_MAX_CALLS = 100

#: Maximum depth of brackets and of scripts within scripts.
_MAX_DEPTH = 12


class ShellCommand(NamedTuple):
    """A simple command of a script."""

    words: list[str]
    text: str = ""  #: of the heredoc that it reads, "" without one
    target: str = ""  #: file that its output is written to, "" for none
    devices: str = ""  #: that its variables let it see
    copies: int = 1  #: times that a loop starts it, each time on other devices


class Script(NamedTuple):
    """What a script says."""

    commands: list[ShellCommand]
    variables: dict[str, str]  #: values at its end
    directives: list[str]  #: words of lines ``#SBATCH`` and the like
    conditions: Sequence[str] = ()  #: tests whose outcome is open, which are taken not to hold


class _Token(NamedTuple):
    """A word with its quotes, or an operator."""

    text: str
    is_operator: bool = False
    heredoc: str = ""
    is_literal: bool = False  #: whether its heredoc is not expanded


#: Role of a pool of engines → words with which scripts name it.
_ROLES = {
    "prefill": ("prefill", "prefiller", "context", "ctx", "producer"),
    "decode": ("decode", "decoder", "generation", "gen", "consumer"),
}

#: Assignment of a role by the first argument of a script.
_ROLE_ARGUMENT = re.compile(r"(?im)^\s*(?:export\s+|local\s+)?\w*(?:role|mode|stage|type)\w*=[\"']?\$\{?1\b")


def script(text: str, variables: Mapping[str, str] | None = None, depth: int = 0, role: str = "") -> Script:
    """Return the commands of a script with expanded words, and its variables.

    Args:
        text: of the script.
        variables: values of the environment by name.
        depth: of scripts within scripts, which is limited.
        role: of the pool of engines that counts where an argument decides it, ``prefill`` or ``decode``.

    Raises:
        InputError: for an open quotation, for a script that becomes too long, and for one whose argument decides the
            role where none is said.

    >>> script("TP=4; run --tp $TP --n $((TP * 2))").commands[0].words
    ['run', '--tp', '4', '--n', '8']
    """
    if len(text) > _MAX_SCRIPT:
        got, allowed = f"a script of {len(text):,} characters", f"at most {_MAX_SCRIPT:,}"
        raise InputError("script", got, allowed, "give the launch command")
    reader = _Reader({**dict.fromkeys(_RANKS, "0"), **(variables or {})}, depth, role)
    if role and _ROLE_ARGUMENT.search(text):
        reader.variables.setdefault("1", role)
    try:
        reader.block(list(_tokens(text)), 0, ())
        for name in [name for name in reader.functions if name not in reader.called]:
            reader.call(name, [])
    except RecursionError:
        raise InputError("script", "brackets nested too deep", "a launch script", "give the launch command") from None
    directives = [word for line in re.findall(r"^#(?:SBATCH|PBS|BSUB)\s+(.*)$", text, re.M) for word in line.split()]
    return Script(reader.commands, reader.strings(), directives, reader.conditions)


# --- words and operators ----------------------------------------------------------------------------------

_OPERATORS = ("&&", "||", ";;", "|&", "&>>", "&>", ">>", "<<<", "2>&1", "2>", ";", "|", "&", "(", ")", "<", ">", "\n")
_HEREDOC = re.compile(r"<<(-?)\s*(\\?)(['\"]?)([\w.-]+)\3")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")


def _tokens(text: str) -> Iterator[_Token]:
    """Yield the words and operators of a script; InputError for an open quotation."""
    text = text.replace("\r\n", "\n").replace("\\\n", " ")
    position, pending, at_start = 0, list[tuple[str, bool, bool]](), True
    while position < len(text):
        character = text[position]
        if character == "\n":
            yield _Token("\n", True)
            position += 1
            while pending:
                body, position = _heredoc(text, position, *pending.pop(0)[:2])
                yield _Token("<<", True, heredoc=body[0], is_literal=body[1])
            at_start = True
        elif character in " \t":
            position, at_start = position + 1, True
        elif character == "#" and at_start:
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif match := _HEREDOC.match(text, position):
            pending.append((match[4], bool(match[2] or match[3]), bool(match[1])))
            position, at_start = match.end(), True
        elif array := _ARRAY.match(text, position):
            end = _closing(text, array.end(), "(", ")")
            yield _Token(text[position : end + 1])
            position, at_start = end + 1, False
        elif name := next((name for name in _OPERATORS if text.startswith(name, position)), ""):
            yield _Token(name, True)
            position, at_start = position + len(name), True
        else:
            end = _word_end(text, position)
            yield _Token(text[position:end])
            position, at_start = end, False


def _heredoc(text: str, position: int, end_word: str, is_literal: bool) -> tuple[tuple[str, bool], int]:
    """Return ((text of a heredoc, whether it is literal), position behind it)."""
    match = re.compile(rf"^[ \t]*{re.escape(end_word)}[ \t]*\)?[ \t]*$", re.M).search(text, position)
    end, after = (match.start(), match.end()) if match else (len(text), len(text))
    return (text[position:end], is_literal), after


def _closing(text: str, position: int, opening: str, closing: str) -> int:
    """Return the position of the bracket that closes one open at ``position``; InputError where there is none."""
    depth = 1
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character in "'\"":
            position = _quote_end(text, position)
        elif character == "#" and opening == "(" and text[position - 1] in " \t\n":
            end = text.find("\n", position)
            position = len(text) - 1 if end < 0 else end
        elif character in (opening, closing):
            depth += 1 if character == opening else -1
            if not depth:
                return position
        position += 1
    raise InputError("script", f"no {closing} that closes {opening}", "closed brackets", "close the bracket")


def _quote_end(text: str, position: int) -> int:
    """Return the position of the quotation mark that closes the one at ``position``; InputError where none does."""
    mark, i = text[position], position + 1
    while i < len(text):
        if text[i] == "\\" and mark == '"':
            i += 1
        elif mark == '"' and text.startswith("$(", i):
            i = _closing(text, i + 2, "(", ")")
        elif text[i] == mark:
            return i
        i += 1
    line = text[position:].splitlines()[0][:40]
    raise InputError("script", f"no closing quotation: {line}", "words as on a command line", "close the quotation")


def _word_end(text: str, position: int) -> int:
    """Return the position behind a word."""
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
        elif character in "'\"`":
            position = _quote_end(text, position) + 1
        elif text.startswith(("$(", "${"), position):
            closing = ")" if text[position + 1] == "(" else "}"
            position = _closing(text, position + 2, text[position + 1], closing) + 1
        elif character in " \t\n;|&()<>":
            return position
        else:
            run = _PLAIN.match(text, position)
            position = run.end() if run else position + 1
    return min(position, len(text))


#: Characters of a word that mean nothing else.
_PLAIN = re.compile(r"[^\\'\"`$ \t\n;|&()<>]+")


# --- commands ---------------------------------------------------------------------------------------------

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[\w+\])?(\+?)=(.*)", re.S)
_DECLARATIONS = ("export", "local", "declare", "readonly", "typeset", "env", "set", "-x", "-a", "-A", "-r", "-i")
_KEYWORDS = ("then", "do", "else", "{", "}", "!", "time", "function")


class _Reader:
    """Follows the tokens of a script."""

    def __init__(self, variables: dict[str, str], depth: int, role: str = "") -> None:
        if depth > _MAX_DEPTH:
            raise InputError("script", "scripts nested too deep", f"at most {_MAX_DEPTH}", "give the inner script")
        self.variables: dict[str, str | list[str]] = dict(variables)
        self.commands: list[ShellCommand] = []
        self.depth, self.count = depth, 0
        self.devices, self.copies, self.role = "", 1, role
        self.functions: dict[str, list[_Token]] = {}
        self.called: list[str] = []  #: functions, those that run at the end
        self.conditions: list[str] = []  #: tests whose outcome is open
        self.loops: list[tuple[str, int]] = []  #: (variable, number of values) of the loops around a command

    def strings(self) -> dict[str, str]:
        """Return name → value of variables, elements of arrays joined by spaces."""
        return {name: value if isinstance(value, str) else " ".join(value) for name, value in self.variables.items()}

    def block(self, tokens: list[_Token], i: int, ends: tuple[str, ...], active: bool = True) -> int:
        """Follow statements up to one of the words ``ends``, and return its position; without ``active`` only pass."""
        while i < len(tokens):
            word = tokens[i].text
            if tokens[i].is_operator:
                i += 1
            elif word in ends:
                return i
            elif word == "if":
                i = self.condition(tokens, i, active)
            elif word == "case":
                i = self.case(tokens, i, active)
            elif word == "function" and i + 1 < len(tokens) and not tokens[i + 1].is_operator:
                i = self.function(tokens, i + 2, tokens[i + 1].text, active)
            elif word in ("for", "while", "until", "select"):
                i = self.loop(tokens, i, active)
            elif word in _KEYWORDS:
                i += 1
            else:
                i = self.simple(tokens, i, active)
        return i

    def condition(self, tokens: list[_Token], i: int, active: bool) -> int:
        """Follow ``if … then … elif … else … fi`` by what its tests say; tests of files are false."""
        is_done = False
        while i < len(tokens) and tokens[i].text in ("if", "elif"):
            end = self.position(tokens, i + 1, ("then",))
            holds = active and not is_done and self.test(tokens[i + 1 : end])
            i = self.block(tokens, end + 1, ("elif", "else", "fi"), holds)
            is_done = is_done or holds
        if i < len(tokens) and tokens[i].text == "else":
            i = self.block(tokens, i + 1, ("fi",), active and not is_done)
        return i + 1

    @staticmethod
    def position(tokens: list[_Token], i: int, words: tuple[str, ...]) -> int:
        """Return the position of the first of some words."""
        return next((k for k in range(i, len(tokens)) if tokens[k].text in words), len(tokens))

    def case(self, tokens: list[_Token], i: int, active: bool) -> int:
        """Follow the first matching branch of ``case … in``."""
        start = self.position(tokens, i, ("in",))
        subject = " ".join(w for token in tokens[i + 1 : start] for w in self.words(token.text)) if active else ""
        if _is_open(subject):
            subject = self.role_of({token.text for token in tokens[start : self.position(tokens, start, ("esac",))]})
        i, is_done = start + 1, not active
        while i < len(tokens) and tokens[i].text != "esac":
            end = self.position(tokens, i, (")", "esac"))
            if end >= len(tokens) or tokens[end].text == "esac":
                return end + 1
            patterns = [token.text.strip("\"'") for token in tokens[i:end] if not token.is_operator]
            holds = not is_done and any(fnmatch.fnmatchcase(subject, pattern) for pattern in patterns)
            i, is_done = self.branch(tokens, end + 1, holds), is_done or holds
        return i + 1

    def role_of(self, words: set[str]) -> str:
        """Return the word among some for the role that counts, "" for none; InputError for an undecided one of both."""
        by_role = {role: next((name for name in names if name in words), "") for role, names in _ROLES.items()}
        if not self.role and all(by_role.values()):
            got = "an argument decides the role of the engine: prefill or decode"
            raise InputError("script", got, "one of them", "add --role prefill, or decode")
        return by_role.get(self.role, "")

    def call(self, name: str, arguments: list[str]) -> None:
        """Follow the body of a function with its arguments."""
        if len(self.called) - len(set(self.called)) > _MAX_CALLS or self.called[-_MAX_DEPTH:] == [name] * _MAX_DEPTH:
            return
        self.called.append(name)
        before = {key: self.variables.pop(key) for key in list(self.variables) if key.isdigit()}
        self.variables |= {str(i): argument for i, argument in enumerate(arguments, 1)}
        if not arguments:
            self.variables |= before
        self.block(self.functions[name], 0, ())
        for key in [key for key in self.variables if key.isdigit()]:
            del self.variables[key]
        self.variables |= before

    def function(self, tokens: list[_Token], i: int, name: str, active: bool) -> int:
        """Note the body of a function whose bracket ``{`` stands at or behind a position; return that behind it."""
        start = self.position(tokens, i, ("{",))
        if any(not token.is_operator for token in tokens[i:start]):
            return i
        end, depth = start + 1, 1
        while end < len(tokens) and depth:
            depth += (tokens[end].text == "{") - (tokens[end].text == "}") if not tokens[end].is_operator else 0
            end += 1
        if active:
            self.functions[name] = tokens[start + 1 : end - 1]
        return end

    def branch(self, tokens: list[_Token], i: int, active: bool) -> int:
        """Follow a branch of ``case`` up to ``;;`` or ``esac``, and return the position behind ``;;``."""
        end, depth = i, 0
        while end < len(tokens) and (depth or tokens[end].text not in (";;", "esac")):
            depth += (tokens[end].text == "case") - (tokens[end].text == "esac")
            end += 1
        self.block(tokens[:end], i, (), active)
        return end + (end < len(tokens) and tokens[end].text == ";;")

    def loop(self, tokens: list[_Token], i: int, active: bool) -> int:
        """Follow the body of a loop once: of ``for`` with its first value."""
        start = self.position(tokens, i, ("do",))
        head = [token.text for token in tokens[i:start] if not token.is_operator]
        if active and head[0] == "for" and len(head) > 3 and head[2] == "in":
            values = [value for text in head[3:] for word in self.words(text) for value in _range(word)]
            self.variables[head[1]] = values[0] if values else ""
            self.loops.append((head[1], len(values)))
            end = self.block(tokens, start + 1, ("done",)) + 1
            self.loops.pop()
            self.copies = 1
            return end
        return self.block(tokens, start + 1, ("done",), active and head[0] != "until") + 1

    def simple(self, tokens: list[_Token], i: int, active: bool) -> int:
        """Follow a simple command, up to an operator that ends it, and return the position behind it."""
        texts, target, position = list[str](), "", i
        while position < len(tokens) and not (
            tokens[position].is_operator and tokens[position].text not in (">", ">>", "<", "2>", "2>&1", "&>", "<<<")
        ):
            token = tokens[position]
            if token.is_operator:
                position += 1
                if token.text != "2>&1" and position < len(tokens) and not tokens[position].is_operator:
                    target = tokens[position].text if token.text in (">", ">>", "&>") else target
                    position += 1
                continue
            texts.append(token.text)
            position += 1
        if position < len(tokens) and tokens[position].text == "(" and len(texts) == 1:
            return self.function(tokens, position + 2, texts[0], active)
        body = self.heredoc(tokens, position)
        if active:
            self.command(texts, body, target)
        return position

    @staticmethod
    def heredoc(tokens: list[_Token], i: int) -> _Token | None:
        """Return the token of the heredoc of the line that ends at or behind a position, None without one."""
        end = next((k for k in range(i, len(tokens)) if tokens[k].text == "\n" and tokens[k].is_operator), len(tokens))
        return tokens[end + 1] if end + 1 < len(tokens) and tokens[end + 1].text == "<<" else None

    def command(self, texts: list[str], body: _Token | None, target: str) -> None:
        """Assign variables in front of a command, and note the command."""
        while texts and (texts[0] in _DECLARATIONS or _ASSIGNMENT.fullmatch(texts[0])):
            if match := _ASSIGNMENT.fullmatch(texts[0]):
                self.assign(match, body)
            texts = texts[1:]
        words = [word for text in texts for word in self.words(text)]
        if words[:1] == ["shift"] and len(words) < 3:
            self.shift(whole_number(words[-1]) or 1)
            return
        if words and words[0] in self.functions:
            self.count += len(words)
            self.call(words[0], [] if words[1:] == [""] else words[1:])
            return
        self.count += len(words)
        if self.count > _MAX_WORDS:
            raise InputError("script", f"more than {_MAX_WORDS:,} words", "a launch script", "give one launch command")
        if not words:
            return
        document = "" if body is None else body.heredoc if body.is_literal else self.expanded(body.heredoc)
        if words[0] == "read" and document:  # read -r -d '' NAME <<EOF
            self.variables[words[-1]] = document
            return
        if words[0] in ("echo", "printf") and target and not document:
            document = "\n".join(word for word in words[1:] if word not in ("-e", "-n", "%s\\n", "%b"))
            document = _unescaped(document) if words[0] == "printf" or "-e" in words[1:3] else document
        copies = max([self.copies, *(self.turns(text) for text in texts if "device=" in text)])
        self.commands.append(ShellCommand(words, document, " ".join(self.words(target)), self.devices, copies))

    def turns(self, text: str) -> int:
        """Return the number of values that a text takes in the loops around it, 1 without their variables."""
        return math.prod(count for name, count in self.loops if re.search(rf"\$\{{?{name}\b", text) and count) or 1

    def assign(self, match: re.Match[str], body: _Token | None) -> None:
        """Assign the value of ``NAME=value``, ``NAME+=value`` or ``NAME=(…)``."""
        name, index, adds, text = match.groups()
        before = self.variables.get(name, "")
        if name.endswith("_VISIBLE_DEVICES"):
            self.copies = self.turns(text)
        if text.startswith("("):
            inner = [token.text for token in _tokens(text[1:-1]) if not token.is_operator]
            elements = [word for token in inner for word in self.words(token)]
            self.variables[name] = (
                [*(before if isinstance(before, list) else before.split()), *elements] if adds else elements
            )
        elif index is None:
            if "<<" in text and body is None:
                value = self.expanded(text)
            elif re.fullmatch(r"[\"']?\$\(\s*cat\s*\)?[\"']?", text) and body is not None:
                value = body.heredoc if body.is_literal else self.expanded(body.heredoc)
            else:
                value = " ".join(self.words(text, split=False))
            if adds and isinstance(before, list):
                self.variables[name] = [*before, value]
            else:
                self.variables[name] = before + value if adds and isinstance(before, str) else value
        if name.endswith("_VISIBLE_DEVICES"):
            self.devices = self.variable(name, "")
        if sum(map(len, self.variables.get(name, ""))) > _MAX_CHARACTERS:
            raise InputError(
                "script", f"a value of {name} of over {_MAX_CHARACTERS:,} characters", "fewer", "shorten it"
            )

    # --- expansion ----------------------------------------------------------------------------------------

    def words(self, text: str, split: bool = True) -> list[str]:
        """Return the words of a word with its quotes, expanded; unquoted values are split at blanks."""
        words, current, is_quoted, i = list[str](), "", False, 0
        while i < len(text):
            character = text[i]
            if character == "\\" and i + 1 < len(text):
                current, i = current + text[i + 1], i + 2
            elif text.startswith("$'", i):
                end = _quote_end(text, i + 1)
                current, is_quoted, i = current + _unescaped(text[i + 2 : end]), True, end + 1
            elif character == "'":
                end = _quote_end(text, i)
                current, is_quoted, i = current + text[i + 1 : end], True, end + 1
            elif character == '"':
                end = _quote_end(text, i)
                inner = text[i + 1 : end]
                if (array := re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", inner)) and isinstance(
                    elements := self.variables.get(array[1], []), list
                ):
                    words += [*([current + elements[0]] if elements else []), *elements[1:-1]]
                    current = elements[-1] if len(elements) > 1 else words.pop() if elements else current
                    is_quoted = is_quoted or bool(elements)
                elif inner in ("$@", "${@}"):
                    elements = self.arguments()
                    words += [*([current + elements[0]] if elements else []), *elements[1:-1]]
                    current = elements[-1] if len(elements) > 1 else words.pop() if elements else current
                    is_quoted = is_quoted or bool(elements)
                else:
                    inner = re.sub(r'\\(["\\$`])', lambda m: "\0" if m[1] == "$" else m[1], inner)
                    current, is_quoted = current + self.expanded(inner).replace("\0", "$"), True
                i = end + 1
            elif character in "$`":
                value, i = self.value(text, i)
                pieces = value.split() if split else [value]
                if len(pieces) > 1 or (pieces and value[:1].isspace()):
                    words += [current + pieces[0], *pieces[1:-1]]
                    current = pieces[-1] if len(pieces) > 1 else words.pop()
                else:
                    current += pieces[0] if pieces else ""
            else:
                run = _PLAIN.match(text, i)
                end = run.end() if run else i + 1
                current, i = current + text[i:end], end
        return [*words, current] if current or is_quoted else words

    def expanded(self, text: str) -> str:
        """Return a text with its variables replaced."""
        pieces, i = list[str](), 0
        while i < len(text):
            if text[i] in "$`":
                value, i = self.value(text, i)
            else:
                end = min((k for mark in "$`" if (k := text.find(mark, i)) >= 0), default=len(text))
                value, i = text[i:end], end
            pieces.append(value)
            if sum(map(len, pieces)) > _MAX_CHARACTERS:
                raise InputError("script", f"a value of over {_MAX_CHARACTERS:,} characters", "fewer", "shorten it")
        return "".join(pieces)

    def value(self, text: str, i: int) -> tuple[str, int]:
        """Return (value of the expansion at a position, position behind it); open ones as ``${NAME}``."""
        if text[i] == "`":
            end = text.find("`", i + 1)
            return ("${command}", end + 1) if end > 0 else ("`", i + 1)
        if text.startswith("$((", i):
            end = _closing(text, i + 2, "(", ")")
            return self.arithmetic(text[i + 3 : end - 1]), end + 1
        if text.startswith("$(", i):
            end = _closing(text, i + 2, "(", ")")
            return self.substitution(text[i + 2 : end]), end + 1
        if text.startswith("${", i):
            end = _closing(text, i + 2, "{", "}")
            return self.parameter(text[i + 2 : end]), end + 1
        match = re.compile(r"\$(\w+|[@*#?])").match(text, i)
        if not match:
            return "$", i + 1
        if match[1] in "@*":
            return " ".join(self.arguments()), match.end()
        if match[1] in "#?":
            return "", match.end()
        return self.variable(match[1], f"${{{match[1]}}}"), match.end()

    def arguments(self) -> list[str]:
        """Return the arguments of the function or the script that is followed, as far as they are there."""
        names = itertools.takewhile(lambda name: name in self.variables, map(str, range(1, 100)))
        return [self.variable(name, "") for name in names]

    def shift(self, count: int) -> None:
        """Drop the first of the arguments."""
        rest = self.arguments()[count:]
        for name in [name for name in self.variables if name.isdigit()]:
            del self.variables[name]
        self.variables |= {str(i): argument for i, argument in enumerate(rest, 1)}

    def variable(self, name: str, default: str) -> str:
        """Return the value of a variable as text, ``default`` where nothing assigns it."""
        value = self.variables.get(name, default)
        return value if isinstance(value, str) else " ".join(value)

    def parameter(self, text: str) -> str:
        """Return the value of ``${…}``: with a default, an alternative, a cut or a replacement."""
        match = re.fullmatch(r"(\w+)(\[[^\]]*\])?(.*)", text, re.S)
        if not match:
            return f"${{{text}}}" if not text.startswith("#") else "${count}"
        name, index, rest = match.groups()
        value = self.variable(name, "")
        if index and index[1:-1].isdigit():
            elements = self.variables.get(name, [])
            value = (
                elements[int(index[1:-1])] if isinstance(elements, list) and int(index[1:-1]) < len(elements) else value
            )
        is_assigned = name in self.variables
        if rest[:2] in (":-", ":=") or rest[:1] in ("-", "="):
            return value if value else self.plain(rest.lstrip(":")[1:])
        if rest[:2] == ":+" or rest[:1] == "+":
            return self.plain(rest.lstrip(":")[1:]) if value else ""
        if not is_assigned:
            return f"${{{name}}}"
        if rest[:1] == "/":
            pattern, _, new = rest.lstrip("/").partition("/")
            old = self.plain(pattern)
            return value.replace(old, self.unquoted(new), -1 if rest[:2] == "//" else 1) if old else value
        if rest[:1] in ("%", "#"):
            return _cut(value, rest)
        if rest in (",,", "^^"):
            return value.lower() if rest == ",," else value.upper()
        return value

    def plain(self, text: str) -> str:
        """Return a text within an expansion without its quotes, expanded."""
        return " ".join(self.words(text, split=False))

    def unquoted(self, text: str) -> str:
        """Return a text with its blanks, expanded."""
        return self.plain(text) if text.strip() else text

    def substitution(self, text: str) -> str:
        """Return the output of ``cat`` of a heredoc, ``echo`` and ``expr``; ``${command}`` of other commands."""
        if match := re.match(r"\s*cat\s*<<-?\s*(\\?)(['\"]?)([\w.-]+)\2[^\n]*\n(.*)", text, re.S):
            body = re.sub(rf"\n?[ \t]*{re.escape(match[3])}\s*$", "", match[4])
            return body if match[1] or match[2] else self.expanded(body)
        inner = script(text, self.strings(), self.depth + 1).commands
        if len(inner) == 1 and inner[0].words[0] == "echo":
            return " ".join(word for word in inner[0].words[1:] if word not in ("-n", "-e"))
        if len(inner) == 1 and inner[0].words[0] == "seq" and all(map(str.isdigit, inner[0].words[1:])):
            first, *_, last = ["1", *inner[0].words[1:]][-2:] if len(inner[0].words) < 4 else inner[0].words[1:]
            return " ".join(_range(f"{{{first}..{last}}}"))
        if len(inner) == 1 and inner[0].words[0] == "expr":
            return self.arithmetic(" ".join(inner[0].words[1:]))
        return "${command}"

    def arithmetic(self, text: str) -> str:
        """Return the whole number of an expression, ``${command}`` where a part of it is open."""
        names = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda m: m[1] or m[2], self.expanded_defaults(text))
        texts = re.sub(r"[A-Za-z_]\w*", lambda m: self.variable(m[0], m[0]), names)
        value = whole_number(texts)
        return "${command}" if value is None else str(value)

    def expanded_defaults(self, text: str) -> str:
        """Return an expression with ``${X:-8}`` and substitutions replaced."""
        return self.expanded(text) if re.search(r"\$\{\w+[^\w}]|\$\(", text) else text

    def test(self, tokens: list[_Token]) -> bool:
        """True where the tests of a condition hold; those of files and of commands do not."""
        results, words, joins = list[bool](), list[str](), list[str]()
        for token in [*tokens, _Token(";", True)]:
            if token.is_operator and token.text not in ("<", ">"):
                if words:
                    opened = [word for word in words if _is_open(word)]
                    word = self.role_of({*words} | _other_roles(words)) if opened else ""
                    tested = [word if word and w in opened else w for w in words]
                    if not _is_certain(tested):
                        self.conditions.append(" ".join(words)[:60])
                    results.append(_holds(tested))
                    joins += [token.text] if token.text in ("&&", "||") else []
                elif token.text in ("&&", "||"):
                    joins.append(token.text)
                words = []
            else:
                expanded = self.words(token.text)
                words += expanded or [""]
        result = bool(results and results[0])
        for join, value in zip(joins, results[1:], strict=False):
            result = (result and value) if join == "&&" else (result or value)
        return result


def _is_certain(words: Sequence[str]) -> bool:
    """True for a test whose outcome the text of a script says: one without files, commands and open variables.

    Whether a variable has a value is certain: one that nothing assigns has none.
    """
    inner = [word for word in words if word not in ("[", "[[", "test", "]", "]]", "!")]
    is_test = any(word in ("[", "[[", "test") for word in words)
    asks_for_value = not inner or inner[0] in ("-z", "-n")
    is_open = any("${" in word for word in inner)
    return is_test and not (inner and re.fullmatch(r"-[a-mo-y]", inner[0])) and (asks_for_value or not is_open)


def _is_open(word: str) -> bool:
    """True for an argument or a variable without a value."""
    return bool(re.fullmatch(r"\$\{\w+\}", word))


def _other_roles(words: Sequence[str]) -> set[str]:
    """Return a word of each role where some words name a role, which another test or branch is of; else none."""
    return set(_ROLES) if any(word in names for word in words for names in _ROLES.values()) else set()


def _range(word: str) -> list[str]:
    """Return the numbers of ``{0..7}``, another word as it is."""
    match = re.fullmatch(r"\{(\d{1,6})\.\.(\d{1,6})\}", word)
    return [str(i) for i in range(int(match[1]), min(int(match[2]), int(match[1]) + 1000) + 1)] if match else [word]


def _unescaped(text: str) -> str:
    r"""Return a text with ``\n`` and ``\t`` as the characters that they mean."""
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("\\'", "'")


def _holds(words: list[str]) -> bool:
    """True where a test ``[ … ]``, ``[[ … ]]`` or ``(( … ))`` holds; False for tests of files and for commands."""
    if "[[" in words and "&&" in words:
        return False
    if words and words[0] == "!":
        return not _holds(words[1:])
    if words[:1] not in (["["], ["[["], ["test"]):
        return False
    inner = ["" if re.fullmatch(r"\$\{\w+\}", word) else word for word in words[1:] if word not in ("]", "]]")]
    if inner[:1] == ["!"]:
        return not _holds(["[", *inner[1:]])
    match inner:
        case ["-z", value]:
            return not value
        case ["-n", value] | [value]:
            return bool(value)
        case [first, "=" | "==", second]:
            return fnmatch.fnmatchcase(first, second)
        case [first, "!=", second]:
            return not fnmatch.fnmatchcase(first, second)
        case [first, name, second] if name in _COMPARISONS:
            one, other = whole_number(first), whole_number(second)
            return one is not None and other is not None and _COMPARISONS[name](one, other)
    return False


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt,
    "-le": operator.le,
}  # fmt: skip

_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip

#: Largest number of an expression.
_MAX_NUMBER = 10**18


def whole_number(text: str) -> int | None:
    """Return the number of an expression of whole numbers with + - * / % and brackets, None for another text.

    >>> whole_number("8 * (4 + 2) / 3"), whole_number("a * 2")
    (16, None)
    """
    if len(text) > 1000 or not re.fullmatch(r"[\d\s+*/%()-]+", text):
        return None

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            result = _ARITHMETIC[type(node.op)](value(node.left), value(node.right))
            if abs(result) <= _MAX_NUMBER:
                return result
        raise ValueError(text)

    try:
        return value(ast.parse(re.sub(r"\b0+(?=\d)", "", text.strip()), mode="eval").body)
    except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return None


def _cut(value: str, rest: str) -> str:
    """Return a value without the end (``%``) or the start (``#``) that matches a pattern."""
    mark, is_longest = rest[0], rest[:2] == rest[0] * 2
    pattern = rest.lstrip(mark)
    ends = range(len(value) + 1)
    pieces = [(value[i:], value[:i]) if mark == "%" else (value[:i], value[i:]) for i in ends]
    matching = [remainder for piece, remainder in pieces if fnmatch.fnmatchcase(piece, pattern)]
    if not matching:
        return value
    return min(matching, key=len) if is_longest else max(matching, key=len)
