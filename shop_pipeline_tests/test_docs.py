"""The documents: links lead somewhere, commands exist, quoted messages are said, code is the code that is tested."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import yaml

from shop_pipeline.cli import app
from shop_pipeline_tests import third_source
from shop_pipeline_tests.conftest import REPOSITORY
from shop_pipeline_tests.integration.test_third_source import CONTRACT

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page is called, as GitHub does."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert there.is_relative_to(REPOSITORY), target
        assert not anchor or anchor in anchors(there), target


def test_pictures_are_there_and_used_and_said_in_words() -> None:
    shown = {}
    for page in PAGES:
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
            shown[(page.parent / target).resolve()] = words
    assert all(len(words) > 10 for words in shown.values()), shown
    there = {*(REPOSITORY / "docs").glob("pictures/*"), *(REPOSITORY / "docs").glob("*.png")}
    assert set(shown) == there


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in readme] == []


def commands(page: Path) -> Iterator[str]:
    """What a page tells to type that begins with `shop`: in code spans and in blocks."""
    text = page.read_text()
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL):
        yield from (line.removeprefix("$ ") for line in block.splitlines() if line.removeprefix("$ ").startswith("shop "))
    yield from re.findall(r"`(shop [a-z][^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


@pages
def test_commands_exist_with_their_options(page: Path) -> None:
    group = typer.main.get_command(app)
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        command = group
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line


@pages
def test_make_targets_exist(page: Path) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)", page.read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def said() -> str:
    """All texts of the package, what is filled in as a mark; and the contracts."""
    texts = []
    for file in sorted((REPOSITORY / "shop_pipeline").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(str(each.value) if isinstance(each, ast.Constant) else "\0" for each in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_the_messages_of_the_night_are_what_is_said() -> None:
    """B9: each message that the page explains is one that the code has."""
    rows = re.findall(r"^\| (`.*?) \|", (REPOSITORY / "docs" / "at-night.md").read_text(), re.MULTILINE)
    assert len(rows) > 12
    texts = said()
    for message in [each for row in rows for each in re.findall(r"`([^`]+)`", row)]:
        for part in filter(None, (each.strip() for each in message.split("…"))):
            assert part in texts, message


def test_the_new_source_is_the_one_that_is_tested() -> None:
    blocks = dict(
        re.findall(r"```(yaml|python)\n(.*?)```", (REPOSITORY / "docs" / "adding-a-source.md").read_text(), re.DOTALL)[:2]
    )
    assert blocks["python"] == Path(third_source.__file__).read_text()
    assert yaml.safe_load(blocks["yaml"]) == yaml.safe_load(CONTRACT)
