"""The command line: run a command, and turn errors into exit codes.

``Verbs`` imports the module of a command, such as commands/explaining/check.py, only when the user
runs this command.
"""

from __future__ import annotations

import importlib
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from lstmprof.base import streams
from lstmprof.base.errors import CacheWarning, LstmprofError, one_line, system_error, unknown_name
from lstmprof.base.package import __version__
from lstmprof.commands import VERBS

_INTERRUPTED = "interrupted; no partial output was left"


class Verbs(click.Group):
    """A group that imports a command only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        if name not in VERBS:
            raise unknown_name("command", name, VERBS)
        module = importlib.import_module(f"lstmprof.commands.{VERBS[name][0]}.{name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without an import of each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in VERBS.items()])


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(__version__, prog_name="lstmprof")
def cli() -> None:
    """Profile LSTM training, and explain why it is slow.

    \b
    Example:
      lstmprof run train.py
      lstmprof diagnose traces/
    """


class TerminatedError(BaseException):
    """A signal, such as SIGTERM, ends the process."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(number)
        self.number = number


def run(arguments: list[str]) -> int:
    """Run the command line, and return the exit code."""
    with streams.guarded(), _warnings_printed():
        try:
            code = cli.main(arguments, prog_name="lstmprof", standalone_mode=False)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:  # no arguments: print the help
            error.show(sys.stderr)
            return error.exit_code
        except BrokenPipeError:  # the program that reads the output (head, less) has closed it
            return 1
        except (Exception, KeyboardInterrupt, TerminatedError) as error:
            return _exit_code_of(error)
    return code if isinstance(code, int) else 0


@contextmanager
def _warnings_printed() -> Iterator[None]:
    """Print a CacheWarning as one line on stderr, inside the ``with`` block."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def print_warning(
            message: Warning | str, category: type[Warning], *where: Any, **file: Any
        ) -> None:
            if issubclass(category, CacheWarning):
                print(f"lstmprof: warning: {one_line(str(message))}", file=sys.stderr)
            else:
                others(message, category, *where, **file)

        warnings.showwarning = print_warning
        yield


def _exit_code_of(error: BaseException) -> int:
    """Print an error in one line and return the exit code, but raise bugs again."""
    if isinstance(error, LstmprofError):
        return _refused(str(error), error.exit_code)
    if isinstance(error, click.ClickException):
        return _refused(_with_help(error), error.exit_code)
    if isinstance(error, TerminatedError):
        return _refused(_interrupted(error), 128 + error.number)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return _refused(_interrupted(error), 128 + signal.SIGINT)
    if isinstance(error, OSError):
        return _refused(str(system_error(error)), 1)
    if isinstance(error, MemoryError):
        return _refused("out of memory; free some memory, or profile fewer steps", 1)
    if isinstance(error, ImportError) and str(error.path).endswith(".so"):
        return _refused(f"{error}; free some memory, or reinstall the package", 1)
    raise error


def _interrupted(stop: BaseException) -> str:
    """Return the message after Ctrl-C or a signal, with a note on what was kept."""
    # search all three exceptions for notes, because click wraps Ctrl-C in its own exception
    raised = (stop, stop.__cause__, stop.__context__)
    notes = [note for error in raised for note in getattr(error, "__notes__", ())]
    return "; ".join([_INTERRUPTED, *notes[:1]])


def _refused(message: str, code: int) -> int:
    print(f"lstmprof: error: {one_line(message)}", file=sys.stderr)
    return code


def _with_help(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    see = f" (see '{context.command_path} --help')" if context else ""
    return error.format_message() + see
