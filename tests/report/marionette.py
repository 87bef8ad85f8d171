"""Firefox driven by its own protocol: length-prefixed JSON over a local socket, no driver needed.

Source: firefox-source-docs.mozilla.org/testing/marionette/Protocol.html
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

#: Seconds that Firefox has to start, and to answer.
_START, _ANSWER = 600, 600


class Firefox:
    """A headless Firefox with a profile of its own."""

    def __init__(self, program: str, profile: Path) -> None:
        (profile / "user.js").write_text('user_pref("marionette.port", 0);\n')
        command = [program, "--headless", "--no-remote", "--marionette", "--profile", str(profile)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            address = ("127.0.0.1", self._port(profile / "MarionetteActivePort"))
            self.socket = socket.create_connection(address, timeout=_ANSWER)
            self.stream = self.socket.makefile("rb")
            self._answer()
            self.number = 0
            self.command("WebDriver:NewSession", capabilities={})
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _port(self, file: Path) -> int:
        until = time.monotonic() + _START
        while not (file.exists() and file.read_text().strip()):
            if time.monotonic() > until or self.process.poll() is not None:
                raise TimeoutError("firefox did not start")
            time.sleep(0.05)
        return int(file.read_text())

    def _answer(self) -> Any:
        size = b""
        while not size.endswith(b":"):
            size += self.stream.read(1)
        return json.loads(self.stream.read(int(size[:-1])))

    def command(self, name: str, **parameters: Any) -> Any:
        """The result of one command."""
        self.number += 1
        message = json.dumps([0, self.number, name, parameters]).encode()
        self.socket.sendall(f"{len(message)}:".encode() + message)
        _, _, error, result = self._answer()
        if error:
            raise RuntimeError(error["message"])
        return result

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is in the page."""
        script = f"return {expression}"
        return self.command("WebDriver:ExecuteScript", script=script, args=[])["value"]

    def wait(self, expression: str) -> None:
        """Waits until a JavaScript expression is true."""
        until = time.monotonic() + _ANSWER
        while not self.value(expression):
            if time.monotonic() > until:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def close(self) -> None:
        """Ends Firefox."""
        self.stream.close()
        self.socket.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
