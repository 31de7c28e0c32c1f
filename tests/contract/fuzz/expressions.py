"""Expressions that try to reach Python through constraints, objectives and quantities."""

#: None is an expression of ours.
ATTACKS = (
    # attributes and names with underscores
    "().__class__.__bases__[0].__subclasses__()", "''.__class__", "tp.__class__", "tp.__init__.__globals__",
    "__builtins__", "__import__", "__name__", "mapping.__dict__", "mapping.tp.__doc__", "step_time.real", "(1).real",
    # calls
    "__import__('os').system('touch owned')", "open('owned', 'w')", "exec('tp')", "eval('tp')", "getattr(tp, 'x')",
    "print(tp)", "tp()", "abs(tp)", "max(tp, pp)", "breakpoint()", "exit()",
    # other syntax
    "[tp for tp in (1, 2)]", "{tp: 1 for tp in (1,)}", "(x for x in tp)", "lambda: 0", "(lambda: tp)()", "(tp := 3)",
    "f'{tp}'", "f'{tp.__class__}'", "'%s' % tp", "'{0.__class__}'.format(tp)", "tp if tp else pp", "tp[0]", "tp[::]",
    "*tp", "await tp", "yield tp", "tp, pp", "{tp}", "{'a': tp}", "tp in (1, 2)", "tp is None", "...", "None", "b'tp'",
    "1j", "tp @ pp", "tp % 2", "tp // 2", "tp << 99", "tp | pp", "~tp", "+tp",
    # work without end
    "9 ** 9 ** 9 ** 9", "tp ** 99999999", "1e400 < tp", "tp < 1" + "0" * 3000, "(" * 3000 + "tp", "-" * 3500 + "tp < 1",
    "tp" + " and tp" * 900, "not " * 900 + "tp", "'" + "9" * 3900 + " B' < peak_memory",
    "peak_memory < '9**9**9**9 B'", "peak_memory < '__import__(0) B'", "peak_memory < '(1).real B'",
    # look-alikes and what terminals do not show
    "t\u0440 < 8", "tp < \u0661", "tp \uff1c 8", "tp\u200b < 8", "\u202etp < 8", "tp\x00 < 8", "tp\n\n< 8",
    "tp;pp", "tp\\\n< 8x", "\ufefftp < 8", "\U0001d5cd\U0001d5c9.__class__",
)  # fmt: skip
