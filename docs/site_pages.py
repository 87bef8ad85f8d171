"""Pages of the site (mkdocs.yml) that are made of what stands elsewhere in the project.

README.md is the first page, CHANGELOG.md and the like stand as they are; the command line's page
and the API's are made from the code. Links are written for a reader of the repository: here one to
a page of the site leads there, and one to a file that is none is its name.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

import lstmprof
from lstmprof.cli import cli

ROOT = Path(__file__).resolve().parents[1]
#: Files of the project → their page.
PAGES = {
    name: name
    for name in ("analyses/README.md", "traces/README.md", "CHANGELOG.md", "CONTRIBUTING.md")
} | {"README.md": "index.md"}
#: ``[text](target)``, of a picture with a ``!`` before it.
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z]+:|#")


def commands() -> str:
    """The page of the command line: what ``--help`` says of each verb."""
    lines = ["# Commands", ""]
    with click.Context(cli, info_name="lstmprof", **cli.context_settings) as group:
        for verb in cli.list_commands(group):
            command = cli.get_command(group, verb)
            with click.Context(command, info_name=verb, parent=group) as context:
                text = command.get_help(context)
            lines += [f"## {verb}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def api() -> str:
    """The page of the public names of the package."""
    names = [name for name in lstmprof.__all__ if not name.startswith("_")]
    lines = [f"::: lstmprof.api.{name}\n" for name in names]
    return "\n".join(["# Python", "", "`import lstmprof as lp`", "", *lines])


def page_of(name: str) -> str:
    """Where the file ``name`` of the project lies in the site, as a path within it."""
    return PAGES.get(name) or name.removeprefix("docs/")


def relinked(text: str, name: str, pages: Files) -> str:
    """The Markdown ``text`` of the file ``name`` of the project, its links those of the site."""
    here = posixpath.dirname(page_of(name))

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        if _ELSEWHERE.match(target):
            return found[0]
        path, mark, place = target.partition("#")
        named = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        page = page_of(named)
        if pages.get_file_from_path(page) is None:
            return words
        return f"[{words}]({posixpath.relpath(page, here or '.')}{mark}{place})"

    return _LINK.sub(link, text).replace('src="docs/', 'src="').replace("](docs/", "](")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    for page in PAGES.values():
        files.append(File.generated(config, page, content=""))
    for chart in sorted((ROOT / "analyses" / "charts").glob("*.svg")):
        place = f"analyses/charts/{chart.name}"
        files.append(File.generated(config, place, abs_src_path=str(chart)))
    files.append(File.generated(config, "commands.md", content=commands()))
    files.append(File.generated(config, "api.md", content=api()))
    return files


def on_page_read_source(page: Any, config: Any) -> str | None:
    """The text of a page that stands elsewhere."""
    name = {page_: name for name, page_ in PAGES.items()}.get(page.file.src_uri)
    return None if name is None else (ROOT / name).read_text(encoding="utf-8")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """``markdown`` with the links of the site."""
    uri = page.file.src_uri
    named = {page_: name for name, page_ in PAGES.items()}
    return relinked(markdown, named.get(uri, f"docs/{uri}"), files)
