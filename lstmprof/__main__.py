"""Start the command: ``python -m lstmprof``, and the script ``lstmprof``.

This file handles signals before most imports, so that Ctrl-C prints one line and no traceback.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, NoReturn

_INTERRUPTED = b"lstmprof: error: interrupted; no partial output was left\n"
_NO_OUTPUT = "lstmprof: error: standard output is closed; redirect it to a file or to /dev/null\n"
_IMPORTING = "<frozen importlib._bootstrap"
#: Seconds until the next attempt to raise a signal's exception.
_SOON_S = 0.02
#: Seconds until Python switches threads. Its default, 5 ms, delays answers of worker threads.
_TURN_S = 0.0005
#: Seconds for which a signal waits for an import, and a second signal for the clean-up.
_PATIENCE_S = 3.0


def main() -> None:
    try:
        signals = _Signals()
        from lstmprof.base import process

        process.be_quick()
        sys.setswitchinterval(_TURN_S)
        from lstmprof import cli
    except KeyboardInterrupt:
        _end_at_once(2)
    except ModuleNotFoundError as error:
        sys.exit(_uninstalled(error))
    if not _has_output():
        sys.exit(1)
    sys.exit(signals.code(cli.run, cli.TerminatedError))


def _uninstalled(error: ModuleNotFoundError) -> str:
    """Return the error message for a missing package that lstmprof needs."""
    package = (error.name or "lstmprof").partition(".")[0]
    if package == "lstmprof":
        raise error
    return (
        f"lstmprof: error: {sys.executable} has no package {package}; "
        "run 'pip install .' in your clone of lstmprof"
    )


class _Signals:
    """Ends the process, or the running command, at SIGINT, SIGTERM and SIGHUP."""

    def __init__(self) -> None:
        import atexit
        import signal
        import time

        atexit.register(self._leave)  # runs last: atexit reverses the order
        self._signal, self._clock = signal, time.monotonic
        self.number = 0
        self._exit_code: int | None = None
        self._came_s = self._raised_s = -_PATIENCE_S
        self._terminated: type[BaseException] = KeyboardInterrupt
        names = [n for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]
        numbers = [getattr(signal, name) for name in names]
        # Signals that the process ignores already (nohup, background) stay ignored.
        self._taken = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
        self._handle(lambda number, frame: _end_at_once(number))

    def code(self, run: Callable[[list[str]], int], terminated: type[BaseException]) -> int:
        self._terminated = terminated
        code = None
        try:
            self._begin()
            code = run(sys.argv[1:])
        except BaseException:
            if not self.number:
                raise
        finally:
            self._end()
        if code is None or (self.number and code != 128 + self.number):
            os.write(2, _INTERRUPTED)
        self._exit_code = 128 + self.number if code is None or self.number else code
        return self._exit_code

    def _begin(self) -> None:
        sys.unraisablehook = self._unraisable
        sys.excepthook = self._uncaught
        if hasattr(self._signal, "SIGALRM"):
            self._signal.signal(self._signal.SIGALRM, self._again)
        self._handle(self._came)

    def _end(self) -> None:
        """Ignore all signals from now on, because the command is ending anyway."""
        self._handle(self._signal.SIG_IGN)
        if hasattr(self._signal, "setitimer"):
            self._signal.signal(self._signal.SIGALRM, self._signal.SIG_IGN)

    def _leave(self) -> None:
        """End the process with the command's exit code, after all other atexit functions."""
        if self._exit_code is not None:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            # skip Python's own exit, which takes 10 % of a short command and which SIGINT can kill
            os._exit(self._exit_code)

    def _handle(self, handler: Any) -> None:
        for number in self._taken:
            self._signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self._came_s = self._clock()
        self.number = self.number or number
        self._again(number, frame)

    def _again(self, number: int, frame: FrameType | None) -> None:
        now_s = self._clock()
        if now_s - self._raised_s < _PATIENCE_S:
            return
        # postpone: in an import, an extension module may lose the exception or raise ImportError
        if _is_importing(frame) and now_s - self._came_s < _PATIENCE_S:
            self._try_soon()
            return
        self._raised_s = now_s
        raise KeyboardInterrupt if self.number == 2 else self._terminated(self.number)

    def _try_soon(self) -> None:
        if hasattr(self._signal, "setitimer"):
            self._signal.setitimer(self._signal.ITIMER_REAL, _SOON_S)

    def _unraisable(self, lost: Any) -> None:
        """Raise a signal's exception again if Python lost the exception in a finalizer."""
        if self.number and issubclass(lost.exc_type, (KeyboardInterrupt, self._terminated)):
            self._raised_s = -_PATIENCE_S
            self._try_soon()
        else:
            sys.__unraisablehook__(lost)

    def _uncaught(self, *error: Any) -> None:
        """Print a traceback, unless a signal is ending the process."""
        from lstmprof.base import streams

        if not self.number:
            with streams.guarded():
                sys.__excepthook__(*error)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            return True
        frame = frame.f_back
    return False


def _end_at_once(number: int) -> NoReturn:
    try:
        os.write(2, _INTERRUPTED)
    finally:
        os._exit(128 + number)


def _has_output() -> bool:
    """Return False, and print an error, if standard output is closed."""
    has_output = sys.stdout is not None
    # open /dev/null for a closed descriptor; otherwise the next file would get its number
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    if not has_output:
        sys.stderr.write(_NO_OUTPUT)
    return has_output


if __name__ == "__main__":
    main()
