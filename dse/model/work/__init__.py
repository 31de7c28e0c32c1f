"""What has to be done, as data, without time: operators, messages, bytes and parameters.

Answers what a layer, a step or a pass consists of. `ledger.py` is the form of it, `training.py` writes it for a step.
`transformer.py`, `experts.py` and `grouped.py` list operators, built by `operators.py`; `messages.py` and `replicas.py`
list messages; `parameters.py` and `state.py` count bytes. `blocks.py` alone distinguishes kinds of layers.

Start with `transformer.layer_operators`.
"""
