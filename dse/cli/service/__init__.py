"""The commands for programs: what ``--json`` prints, over HTTP of the loop-back address and as tools of MCP.

``operations.py`` says what may be asked, ``worker.py`` answers in a process of its
own with limits of time and memory, ``web.py`` and ``tools.py`` are the two doors.
"""
