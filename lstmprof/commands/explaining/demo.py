"""``lstmprof demo``: a real comparison of two runs that come with lstmprof."""

from __future__ import annotations

import shlex

import click

from lstmprof.commands import options, terminal

_SLOW, _FAST = "torch-lstmcell-basic", "torch-nn-lstm"


@click.command(name="demo")
def command() -> int:
    """Diagnose two sample runs, to show what an answer looks like.

    Both samples were recorded on one machine and train one network with PyTorch: a loop over LSTM
    cells, and nn.LSTM. They come with lstmprof, so demo needs no framework, no GPU and no internet.
    The last lines say where the samples are, and which commands to try next.

    \b
    Example:
      lstmprof demo
    """
    from lstmprof.commands.terminal import diagnosis
    from lstmprof.diagnose.diagnosis import diagnose_all

    samples = options.bundled("samples", "traces")
    with options.leaving_out() as left_out:
        runs = options.runs_of([str(samples / name) for name in (_FAST, _SLOW)], left_out)
        breakdowns = options.broken_down(runs, left_out, None, ("ledger", "collectives"))
        terminal.write_line("A PyTorch loop over LSTM cells, and nn.LSTM with the same network:")
        terminal.write_line()
        diagnosis.show_all(diagnose_all(breakdowns, must_compare=True), more=False)
    place = shlex.quote(str(samples))
    options.result(f"The two samples are in {place}. To look further:")
    for line in (
        f"lstmprof diagnose {place}/{_SLOW} --evidence",
        f"lstmprof breakdown {place}/{_SLOW} {place}/{_FAST}",
        f"lstmprof report {place}/{_SLOW} {place}/{_FAST} --open",
        "lstmprof run train.py        # your own script",
    ):
        print(f"  {line}")
    return left_out.code
