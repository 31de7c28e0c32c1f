"""Output of ``dse`` without arguments: three common uses as shell commands."""

from __future__ import annotations

import typer

PAGE = """\
dse predicts time, memory, energy and money of training and serving large language models.

Which mapping is the fastest? A sweep evaluates all of them:

  printf '%s\\n' 'workload.name = "llama-3-70b"' 'workload.global_batch = 512' \\
    'system = { name = "eos", n_devices = 512 }' '[axes]' 'tp = "divisors"' 'pp = "divisors"' \\
    'micro_batch = [1, 2, 4]' 'recompute = ["none", "selective", "full"]' > my_sweep.toml
  dse run my_sweep.toml

Where does the time of one design go, and what would improve it?

  dse evaluate -w llama-3-70b -s eos -n 512 --set tp=8 --set pp=4 --set recompute=full

What may be asked? dse examples lists sweeps that come with it, each with the line that runs it.

How far are predictions from what you have measured?

  printf '%s\\n' 'model,gpu,n_gpus,tp,pp,micro_batch,global_batch,seq_len,iteration_s_measured' \\
    'llama-3-70b,H100,64,4,4,1,128,8192,22.4' > my_runs.csv
  dse validate my_runs.csv

dse --help shows all commands, dse COMMAND --help the options of one, dse catalog list all names.
"""


def show() -> None:
    """Print the page."""
    typer.echo(PAGE, nl=False)
