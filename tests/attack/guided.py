"""Attack one target guided by coverage: ``python -m attack.guided --target kineto``.

atheris (libFuzzer) keeps the inputs that reach new code of lstmprof and changes them further, with
the target's own mutations. It is installed apart: ``make fuzz`` says where. Its counts are written
to a file, because libFuzzer ends the process itself.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

import atheris

_WATCHED = ["lstmprof.events", "lstmprof.formats", "lstmprof.runs"]

with atheris.instrument_imports(include=_WATCHED, enable_loader_override=False):
    import lstmprof.events.annotate
    import lstmprof.formats
    import lstmprof.formats.cuda.nsys
    import lstmprof.formats.cuda.nvprof
    import lstmprof.formats.kineto
    import lstmprof.formats.kineto.autograd
    import lstmprof.formats.mxnet
    import lstmprof.formats.onnxruntime
    import lstmprof.formats.rocm.rocpd
    import lstmprof.formats.rocm.rocprofv3
    import lstmprof.formats.xplane
    import lstmprof.formats.xplane.tf1_timeline
    import lstmprof.formats.xplane.trace_viewer
    import lstmprof.runs.run  # noqa: F401

from attack.fuzz import Attack, hung  # noqa: E402 - what it imports is watched
from attack.targets import TARGETS  # noqa: E402

_TOLD_EVERY = 200


def main() -> None:
    """Attack until the time is over; libFuzzer ends the process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", required=True, choices=[*TARGETS])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/attack"), help="failures, corpus")
    parser.add_argument("--counts", type=Path, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, hung)
    target = TARGETS[options.target]
    corpus = options.out / "corpus" / target.name.replace(" ", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(content)
    attack = Attack([target.name], options.seed, options.out, Path(tempfile.gettempdir()))

    def one(content: bytes) -> None:
        attack.one(target, content)
        if attack.tallies[target.name].inputs % _TOLD_EVERY == 0:
            attack.tell(options.counts)

    def changed(content: bytes, most: int, seed: int) -> bytes:
        return target.mutate(content, random.Random(seed))[:most]

    flags = [f"-max_total_time={options.seconds}", f"-seed={options.seed}", "-max_len=65536"]
    flags += ["-timeout=0", "-rss_limit_mb=0", "-verbosity=0", "-close_fd_mask=0"]
    atheris.Setup([sys.argv[0], *flags, os.fspath(corpus)], one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
