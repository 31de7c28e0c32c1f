"""Cost and carbon of dies, packages, accelerators and systems (records: dse.types.money).

Answers what a device costs to make and to buy, what a system costs a year, and what both emit. Knows areas and powers,
nothing of workloads.

Start with `account.py`; the bill of a device is `device.py`, over `die.py` and `package.py`.
"""
