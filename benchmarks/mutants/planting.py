"""Replace the code of functions in this process, so that a fork need not import the mutant."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType

#: Identifies a function's code: (file, qualified name, first line).
_Key = tuple[str, str, int]
Functions = dict[_Key, list[FunctionType]]
Source = str | ast.Module


def functions_of(tree: Path, paths: Sequence[str]) -> Functions:
    """Import the modules ``paths`` of ``tree`` and return their functions, by key of the code.

    Modules that cannot be imported are skipped.
    """
    files = {str(tree / path) for path in paths}
    for path in paths:
        with suppress(ImportError):
            importlib.import_module(".".join(Path(path).with_suffix("").parts))
    functions: Functions = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in files:  # excludes proxies
            functions.setdefault(_key(each.__code__), []).append(each)
    return functions


def plant(functions: Functions, path: Path, source: Source) -> None:
    """Replace the code of the functions of the module at ``path`` by their code in ``source``."""
    codes = [*_function_codes(compile(source, str(path), "exec"))]
    times = Counter(map(_key, codes))
    for code in codes:
        for function in functions.get(_key(code), ()) if times[_key(code)] == 1 else ():
            if len(code.co_freevars) == len(function.__code__.co_freevars):
                function.__code__ = code


def _function_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of each function in ``code`` that is not inside another function."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            else:  # a class
                yield from _function_codes(constant)


def _key(code: CodeType) -> _Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno
