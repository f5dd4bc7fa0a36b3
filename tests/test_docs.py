"""The documentation is right: its commands and their output, options and links."""

import contextlib
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel
from shell_blocks import DOCS, MARKS, PAGES, ROOT, Block, Runner, blocks, matches
from warm_python import warm_commands

from pesto_cli.cli import cli
from pesto_cli.files.schemas import schema_files

SHELL = [block for page in PAGES for block in blocks(page) if block.is_shell]
LANGUAGES = {"console", "csv", "diff", "json", "markdown", "python", "text", "toml", "yaml"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with warm_commands() as commands:
        yield Runner(commands, tmp_path_factory.mktemp("pages"), slow=False)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_commands_print_what_the_page_shows(page: Path, runner: Runner) -> None:
    problems = [each.problem for each in runner.run(page) if each.problem]
    assert not problems, "\n".join(problems)


def test_a_mark_that_is_written_wrongly_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for mark, is_run in [("slow", True), ("not run: takes an hour", False), ("other", True)]:
        page.write_text(f"<!-- {mark} -->\n```console\n$ pesto doctor\n```\n")
        assert [block.is_run for block in blocks(page)] == [is_run]
    for wrong in ("not run: slow", "slow,shape"):
        page.write_text(f"<!-- {wrong} -->\n```console\n$ pesto doctor\n```\n")
        with pytest.raises(ValueError, match=re.escape(repr(wrong))):
            blocks(page)


def test_output_is_compared() -> None:
    table = " a   step ms      took\n ─────────────────────\n x     64.75   60.03 s\n"
    assert matches(table, table.replace("60.03 s", "7.1 s").replace("─────", "─"))
    assert not matches(table, table.replace("64.75", "64.76"))
    assert matches(table, table.replace("64.75", "123.4"), "shape")
    assert not matches(table, table.replace("x", "y"), "shape")
    assert not matches(table, table + " z     64.75   60.03 s\n", "shape")
    assert matches("one\n...\nfour\n", "one\ntwo\nthree\nfour\n")
    assert not matches("one\n...\nfour\n", "one\ntwo\nthree\n")


def test_lines_that_differ_only_in_numbers_count_as_one() -> None:
    shown = (
        "start\n  0.8 s  79.67 ms  gap 18.9%  expert\n...\n 57.7 s  64.91 ms  gap 0.4%  last\nend\n"
    )
    progress = "  1.2 s  70.51 ms  gap  8.3%  metis\n"
    assert matches(shown, f"start\n{progress}end\n", "shape")
    assert matches(shown, f"start\n{progress * 3}end\n", "shape")
    assert not matches(shown, f"start\n{progress}warning\nend\n", "shape")
    assert not matches(shown, f"start\n{progress}warning\n{progress}end\n", "shape")
    assert not matches(shown, "start\nend\n", "shape")
    assert not matches(shown, f"start\n{progress * 3}end\n")
    assert matches("a 1\n...\nb 2\n", "a 1\nwarning\nb 2\n", "shape")


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.name)
def test_commands_take_the_options_that_are_shown(block: Block) -> None:
    """Commands that are not run here are checked, too."""
    for command in block.commands:
        typed = re.split(r" 2>|[|<>;]", command.text.replace("\\\n", " "))[0]
        first, *arguments = shlex.split(typed, comments=True)
        if first == "pesto":
            check_options(arguments)
        elif first == "make":
            assert f"\n{arguments[0]}:" in (ROOT / "Makefile").read_text(), command.text
        elif not block.is_run and first == "python":
            at = arguments[1].replace(".", "/") if arguments[0] == "-m" else arguments[0]
            assert list(ROOT.glob(f"{at}*")), command.text


def check_options(arguments: list[str]) -> None:
    command: click.Command = cli
    context, name = click.Context(cli), "pesto"
    while isinstance(command, click.Group) and arguments[:1] not in ([], ["--help"], ["--version"]):
        name, command, arguments = command.resolve_command(context, arguments)
    with contextlib.suppress(click.exceptions.Exit):  # of --help
        command.make_context(name, list(arguments))


def test_most_commands_of_the_pages_are_run() -> None:
    left_out = [block.name for block in SHELL if not block.is_run for _ in block.commands]
    assert len(left_out) < sum(len(block.commands) for block in SHELL) / 5, left_out


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_commands_stand_only_in_shell_blocks(page: Path) -> None:
    text = page.read_text()
    for block in blocks(page):
        assert block.language in LANGUAGES, block.name
        if not block.is_shell:
            assert not re.search(r"^(\$ |pesto )", block.body, re.MULTILINE), block.name
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"\n\n    (\$ |pesto |make |python )", plain), "an indented block"
    marks = re.findall(r"^<!-- (.*) -->\n```", text, re.MULTILINE)
    assert all(MARKS.fullmatch(mark) for mark in marks), marks


def test_every_command_has_a_page_with_its_options() -> None:
    for name, command in cli.commands.items():
        text = (DOCS / "commands" / f"{name}.md").read_text()
        inner = command.commands if isinstance(command, click.Group) else [""]
        for each in inner:
            assert f"\n$ pesto {name} {each}".rstrip() + " --help\n" in text
        assert f"[`{name}`]({name}.md)" in (DOCS / "commands" / "index.md").read_text()


@pytest.mark.parametrize(
    "name",
    ["comm", "constraints", "machine", "placement_schema", "plan", "profile_schema", "tuning_log"],
)
def test_every_field_of_a_file_is_described(name: str) -> None:
    text = (DOCS / "files.md").read_text()
    module = importlib.import_module(f"pesto_cli.files.{name}")
    values = [each for each in vars(module).values() if isinstance(each, type)]
    schemas = [
        each
        for each in values
        if issubclass(each, BaseModel) and each.__module__ == module.__name__
    ]
    assert schemas
    for schema in schemas:
        for field in schema.model_fields:
            assert re.search(rf"[`.\[]{field}[`\].]", text), f"{schema.__name__}.{field}"


def test_json_schemas_are_those_of_the_code() -> None:
    found = {path.name: path.read_text() for path in (DOCS / "schemas").iterdir()}
    remedy = "python -m pesto_cli.files.schemas docs/schemas"
    assert found == schema_files(), f"make them again: {remedy}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a dead link, or a page outside the navigation, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^>]*>")
    for page in site.rglob("*.html"):
        found = [tag for tag in loads.findall(page.read_text()) if 'rel="canonical"' not in tag]
        assert not found, page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )['\"]?(https?:)?//", sheet.read_text()), sheet


def test_links_of_the_readme_have_targets(site: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", (ROOT / "README.md").read_text())
    assert links
    for path, anchor in links:
        assert (ROOT / path).exists(), path
        if anchor:
            page = site / Path(path).relative_to("docs").with_suffix(".html")
            assert f'id="{anchor}"' in page.read_text(), f"{path}#{anchor}"
