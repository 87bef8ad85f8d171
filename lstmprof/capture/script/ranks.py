"""Measure a job of several processes (ranks).

Each rank writes results to a folder, and one process writes the run from all results. lstmprof
changes the commands of ranks that the script starts (``mp.spawn``, accelerate). A launcher such as
``torchrun -m lstmprof run`` starts one lstmprof per rank. Sources:
torch/distributed/elastic/multiprocessing, Lib/multiprocessing/spawn.py.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
import re
import shutil
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from lstmprof.capture.request import ScriptRequest

#: Environment variables of (rank, number of ranks) from torchrun, Open MPI, MPICH and srun.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # a batch script has no number of tasks
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)
#: Environment variables that a launcher sets only for the processes that train.
_LAUNCHED = re.compile(r"(LOCAL_)?RANK|ACCELERATE_\w+")
_PYTHON = re.compile(r"python[\d.]*(\.exe)?")
#: Options of ``python`` that may have a separate value, as in ``-W ignore``.
_WITH_VALUE = ("-X", "-W")
#: Seconds that rank 0 waits for the results of the other ranks.
_WAIT_S = 60.0
_PART = "rank-"
#: Suffix of the empty file that marks a rank without results.
_NONE = ".none"

#: Rank, and number of ranks.
Rank = Tuple[int, int]


def rank_of(variables: Mapping[str, str]) -> Optional[Rank]:
    """Return (rank, number of ranks) from a launcher's variables, such as ``RANK=1``."""
    for name, size_name in _VARIABLES:
        rank, size = variables.get(name, ""), variables.get(size_name, "")
        if rank.isdigit() and size.isdigit():
            return (int(rank), int(size)) if int(size) > 1 else None
    return None


def rank_of_process() -> Optional[Rank]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        size = distributed.get_world_size()
        return (distributed.get_rank(), size) if size > 1 else None
    return rank_of(os.environ)


class Job:
    """This process's role in a distributed job."""

    def __init__(self, request: ScriptRequest) -> None:
        self.request = request
        self.child = bool(request.parts)  # started by the script or a launcher inside it
        # this process's rank if a launcher started lstmprof, else None
        self.launched = None if self.child else rank_of(os.environ)
        self.folder = request.parts or _folder(request.place, self.launched)

    def rank(self) -> Optional[Rank]:
        return rank_of_process() or ((0, 1) if self.child else None)

    def part_folder(self, rank: Rank) -> str:
        """Return the folder for the results of a rank; delete older results."""
        place = os.path.join(self.folder, "{}{}".format(_PART, rank[0]))
        shutil.rmtree(place, ignore_errors=True)
        return place

    def give_up(self) -> None:
        """Let rank 0 stop waiting for this rank if this rank has no results."""
        if self.launched is None or self.child:
            return
        place = os.path.join(self.folder, "{}{}".format(_PART, self.launched[0]))
        if not os.path.exists(place):
            os.makedirs(self.folder, exist_ok=True)
            with open(place + _NONE, "w"):
                pass

    def parts(self) -> List[str]:
        """Wait a limited time for the results of all ranks; return their folders."""
        until_s = time.monotonic() + _WAIT_S
        pattern = os.path.join(glob.escape(self.folder), _PART + "*")
        while self.launched and len(glob.glob(pattern)) < self.launched[1]:
            if time.monotonic() > until_s:
                break
            time.sleep(0.05)
        return [path for path in glob.glob(pattern) if not path.endswith(_NONE)]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def attachments(
        self, wanted: Callable[[], bool], safely: Callable[..., Any]
    ) -> Dict[str, Callable[[Any], None]]:
        """Return import hooks, to measure the processes that the script starts."""
        # add no hooks if a launcher starts one lstmprof per rank, or if nsys records the script
        if self.launched is not None or self.request.folder:
            return {}

        def watch_commands(subprocess: Any) -> None:
            init = subprocess.Popen.__init__

            @functools.wraps(init)
            def started(popen: Any, *positional: Any, **options: Any) -> None:
                if wanted() and options.get("env") is not None:
                    if "args" in options:
                        options["args"] = (
                            safely(self._watched, options["args"], options["env"])
                            or options["args"]
                        )
                    elif positional:
                        command = safely(self._watched, positional[0], options["env"])
                        positional = (command or positional[0], *positional[1:])
                init(popen, *positional, **options)

            subprocess.Popen.__init__ = started

        def watch_spawning(spawn: Any) -> None:
            command_line = spawn.get_command_line

            @functools.wraps(command_line)
            def watched(**options: Any) -> List[str]:
                command: List[str] = command_line(**options)
                return (safely(self._spawned, command) or command) if wanted() else command

            spawn.get_command_line = watched

        return {"subprocess": watch_commands, "multiprocessing.spawn": watch_spawning}

    def _watched(self, args: Any, env: Mapping[str, str]) -> Optional[List[str]]:
        """Return a launcher's command, changed to measure the training process."""
        launched = any(_LAUNCHED.fullmatch(n) and n not in os.environ for n in map(str, env))
        parsed = _parsed(args) if launched and isinstance(args, (list, tuple)) else None
        if parsed is None:
            return None
        python, module, target, arguments = parsed
        request = dataclasses.replace(
            self.request,
            parts=self.folder,
            target=target,
            module=module,
            arguments=arguments,
            python=python[0],
        )
        main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "main.py")
        return [*python, main, _written(request)]

    def _spawned(self, command: List[str]) -> List[str]:
        """Return multiprocessing's command, changed to measure the new process."""
        path = _written(dataclasses.replace(self.request, parts=self.folder))
        code = (
            "try:\n import sys; sys.path.insert(0, {!r})\n"
            " from lstmprof.capture.script import main\n del sys.path[0]\n main.watch({!r})\n"
            "except Exception: pass\n"
        ).format(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)), path)
        place = command.index("-c") + 1
        program = "exec({!r}); {}".format(code, command[place])
        return [*command[:place], program, *command[place + 1 :]]


def _folder(place: str, launched: Optional[Rank]) -> str:
    """Return a hidden folder beside the run, for the results of all ranks."""
    job = str(os.getpid())
    # name the folder by the job's id, which all ranks know
    if launched is not None:
        several = os.environ.get("LOCAL_WORLD_SIZE", str(launched[1])) != str(launched[1])
        names = ["SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "TORCHELASTIC_RUN_ID"]
        names += ["MASTER_ADDR", "MASTER_PORT"] if several else []
        known = [os.environ[name] for name in names if os.environ.get(name, "none") != "none"]
        job = re.sub(r"\W", "-", "-".join(known or [str(os.getppid())]))
    out, name = os.path.split(os.path.abspath(place))
    return os.path.join(out, ".{}-of-{}".format(name, job))


def _parsed(args: Sequence[Any]) -> Optional[Tuple[List[str], bool, str, List[str]]]:
    """Parse ``python -m train -v`` to ``(["python"], True, "train", ["-v"])``."""
    words = [os.fspath(word) for word in args]
    if not words or not _PYTHON.fullmatch(os.path.basename(words[0])):
        return None
    place = 1
    while place < len(words):
        word = words[place]
        if word == "-m" and place + 1 < len(words):
            return words[:place], True, words[place + 1], words[place + 2 :]
        if word == "-c" or word == "-":
            return None
        if not word.startswith("-"):
            return words[:place], False, word, words[place + 1 :]
        place += 2 if word in _WITH_VALUE else 1
    return None


def _written(request: ScriptRequest) -> str:
    """Write a request to a temporary file, which the new process reads and removes."""
    path = os.path.join(tempfile.mkdtemp(prefix="lstmprof-"), "request.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(request.to_json())
    return path
