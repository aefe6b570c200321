"""`stripewise help`."""

from importlib.resources import files
from typing import Annotated

import typer

from stripewise import StripewiseError
from stripewise.cli import console


def help(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="A page; all are listed if left out.")] = None,
) -> None:
    """Show a page of the documentation, as Markdown.

    What a command takes is told by its own --help.

    \b
    Examples:
      stripewise help
      stripewise help advise
    """
    directory = files("stripewise") / "pages"
    # Only what is listed is opened, whatever the topic is.
    pages = {page.name.removesuffix(".md"): page for page in directory.iterdir() if page.name.endswith(".md")}
    if topic is None:
        grid = console.table(["topic", "page"])
        for name in sorted(pages):
            with pages[name].open(encoding="utf-8") as page:
                grid.add_row(name, page.readline().removeprefix("# ").rstrip())
        console.out.print(grid)
        return
    name = topic.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise StripewiseError(f"there is no topic '{topic}'; `stripewise help` lists them")
    typer.echo(pages[name].read_text(encoding="utf-8"), nl=False)
