"""The command line: the group of verbs, and the one place where errors become messages and codes.

Imports click alone; frameworks and dataframe libraries are imported by the verb that needs them.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

import click

from lstmprof import __version__
from lstmprof.commands import VERBS
from lstmprof.errors import LstmprofError, one_line, unknown_name

_INTERRUPTED = "interrupted; nothing half-written was left"


class Verbs(click.Group):
    """The verbs of ``commands.VERBS``, imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which a user needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        """The command of a verb.

        Raises:
            UsageError: no such verb; says which is nearest.
        """
        if name not in VERBS:
            raise unknown_name("command", name, VERBS)
        command: click.Command = importlib.import_module(VERBS[name]).command
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lstmprof")
def cli() -> None:
    """Why one LSTM is slower than another: capture, and account for every nanosecond of a step.

    \b
    Example:
      lstmprof capture --impl torch-cudnn --workload 1x320-ce-short
      lstmprof breakdown traces/
    """


def main() -> None:
    """Run the command line; exit 0 well, 1 failure, 2 usage, 130 or 143 interrupted."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(sys.argv[1:]))


class _TerminatedError(BaseException):
    """SIGTERM, raised so that what is under way cleans up after itself."""


def _terminate(number: int, frame: object) -> None:
    raise _TerminatedError


def run(arguments: list[str]) -> int:
    """Exit code of the command line with these arguments."""
    try:
        code = cli.main(arguments, prog_name="lstmprof", standalone_mode=False)
        sys.stdout.flush()
    except LstmprofError as error:
        return _refused(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:  # bare lstmprof: its help, all lines
        error.show(sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        return _refused(_with_help(error), error.exit_code)
    except _TerminatedError as stop:
        return _refused(_interrupted(stop), 128 + signal.SIGTERM)
    except (click.Abort, KeyboardInterrupt) as stop:
        return _refused(_interrupted(stop), 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def _interrupted(stop: BaseException) -> str:
    """That it was, and what is kept, as what was under way noted; click wraps Ctrl-C."""
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
