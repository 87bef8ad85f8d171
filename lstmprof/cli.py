"""The command line: the group of verbs, and the one place where errors become messages and codes.

Imports click alone; frameworks and dataframe libraries are imported by the verb that needs them.
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

from lstmprof import __version__
from lstmprof.commands import VERBS
from lstmprof.errors import CacheWarning, LstmprofError, of_system, one_line, unknown_name
from lstmprof.host import streams

_INTERRUPTED = "interrupted; no partial output was left"


class Verbs(click.Group):
    """The commands of ``commands.VERBS``, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a user needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        """Return a command.

        Raises:
            UsageError: no command has this name; the message suggests the nearest one.
        """
        if name not in VERBS:
            raise unknown_name("command", name, VERBS)
        command: click.Command = importlib.import_module(f"lstmprof.commands.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs and their sentences, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lstmprof")
def cli() -> None:
    """Profile LSTM training, and explain why it is slow.

    \b
    Example:
      lstmprof run train.py
      lstmprof diagnose traces/
    """


class TerminatedError(BaseException):
    """Raised when a signal ends the process, so that the current work cleans up."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(number)
        self.number = number


def run(arguments: list[str]) -> int:
    """Run the command line with ``arguments``, and return the exit code."""
    with streams.guarded(), _warnings_told():
        try:
            code = cli.main(arguments, prog_name="lstmprof", standalone_mode=False)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:  # bare lstmprof: its help, all lines
            error.show(sys.stderr)
            return error.exit_code
        except BrokenPipeError:  # the reader of the output (head, less) has closed it
            return 1
        except (Exception, KeyboardInterrupt, TerminatedError) as error:
            return _told(error)
    return code if isinstance(code, int) else 0


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Print lstmprof's own warnings like errors: one line, without a place in the code."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def told(message: Warning | str, category: type[Warning], *where: Any, **file: Any) -> None:
            if issubclass(category, CacheWarning):
                print(f"lstmprof: warning: {one_line(str(message))}", file=sys.stderr)
            else:
                others(message, category, *where, **file)

        warnings.showwarning = told
        yield


def _told(error: BaseException) -> int:
    """Print ``error`` and return its exit code; raise it again if it is a bug."""
    if isinstance(error, LstmprofError):
        return _refused(str(error), error.exit_code)
    if isinstance(error, click.ClickException):
        return _refused(_with_help(error), error.exit_code)
    if isinstance(error, TerminatedError):
        return _refused(_interrupted(error), 128 + error.number)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return _refused(_interrupted(error), 128 + signal.SIGINT)
    if isinstance(error, OSError):
        return _refused(str(of_system(error)), 1)
    if isinstance(error, MemoryError):
        return _refused("out of memory; free some memory, or profile fewer steps", 1)
    if isinstance(error, ImportError) and str(error.path).endswith(".so"):
        return _refused(f"{error}; free some memory, or reinstall the package", 1)
    raise error


def _interrupted(stop: BaseException) -> str:
    """Return the message of an interrupted command, with what it kept; click wraps Ctrl-C."""
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
