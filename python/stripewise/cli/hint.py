"""`stripewise hint`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise import StripewiseError, terminal
from stripewise.api import hinting
from stripewise.api.pools import Pool
from stripewise.cli import console
from stripewise.units import counted, exact_bytes

if TYPE_CHECKING:
    from stripewise.api.hinting import OpenTaken, Optimisation, OptimisationParameter, PathTaken, Place

MOST_RULES = 20
"""Of those that are shown: `apply` may have set one for each file."""
HELP_COLUMNS = 72
"""Of a line of the list of optimisations, which stands four columns in."""
INDENT = " " * 4


def hint(
    path: Annotated[
        Path, typer.Argument(metavar="DIR|FILE", help="A directory or file of a pool; with --pool also its path in it.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OPTIMISATION",
            help="What new files get, or FILE, as in readahead=8M; with --remove: which, as in readahead.",
        ),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--for", metavar="PATTERN", help="Only for names that match, as in '*.h5'.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show the hints and change nothing.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove what is said of all names, or of PATTERN.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="With --remove: all hints, damaged ones too.")] = False,
    why: Annotated[
        bool,
        typer.Option("--why", help="Say which path the next open of FILE takes, which the last took, and why."),
    ] = False,
    pool_file: Annotated[
        Path | None,
        typer.Option("--pool", "-p", metavar="POOL", help="Pool file; found by the path when left out."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what files get that are made in a directory from now on, or change what a file has.

    A hint counts for all names, or for those of a pattern; the latest pattern that matches wins. In a pattern `*`
    stands for any characters, `?` for one, and a backslash takes the next one as it is. What else is said of the same
    names stays. Directories that are made there take the hints over. Files that exist stay as they are. A layout is a
    rule, as `apply` sets them: it counts below the directory, too, and `small` counts for no file that has one. What is
    said of a file counts from its next open on; no byte of it moves, so that `small` and `layout` are not said of
    files.

    \b
    Optimisations:
      {optimisations}
      layout=ROUND[/OFFSET@ROUND...]
          where every byte is, as in a layout file: servers with their widths,
          and more regions with their offsets

    \b
    Examples:
      stripewise hint p/mount/photos small=64K
      stripewise hint p/mount/photos small=1M --for '*.jpg'
      stripewise hint p/mount/runs readahead=8M
      stripewise hint p/mount/runs layout=hdd.0-5:64K,ssd.0-1:256K
      stripewise hint p/mount/photos --show
      stripewise hint p/mount/photos --remove --for '*.jpg'
      stripewise hint p/mount/photos --remove small
      stripewise hint p/mount/photos/a.jpg --why
      stripewise hint p/mount/runs/a.h5 readahead=8M
      stripewise hint p/mount/runs/a.h5 --remove readahead

    \b
    Exit codes: 0 done, 1 failed and nothing changed, 2 the command line is wrong.
    """
    asked = [bool(settings) and not remove, show, remove, why]
    is_wrong = everything and (bool(settings) or not remove)
    if sum(asked) > 1 or is_wrong or (pattern is not None and (show or why or everything)):
        raise typer.BadParameter("give optimisations, or one of --show, --remove and --why")
    if not any(asked):
        raise typer.BadParameter("give optimisations, as in small=64K, or one of --show, --remove and --why")
    place = hinting.place_of(path, None if pool_file is None else Pool.load(pool_file))
    if why:
        _print_why(place, as_json=as_json)
        return
    if hinting.is_file(place):
        if pattern is not None:
            raise typer.BadParameter("--for PATTERN is for the names of a directory, and this is a file")
        if remove:
            hinting.remove_from_file(place, settings or [])
        elif settings:
            hinting.hint_file(place, settings)
        _print_after(_print_file, place, is_changed=not show, as_json=as_json)
        return
    if everything:
        hinting.remove_all(place)
    elif remove:
        hinting.remove(place, settings or [], pattern=pattern)
    elif settings:
        hinting.hint(place, settings, pattern=pattern)
    _print_after(_print, place, is_changed=not show, as_json=as_json)


def _listed(table: Iterable[Optimisation]) -> list[str]:
    """Lines of the help: how each is written, what it does, and what its parameters may be."""
    lines = []
    for each in table:
        told = textwrap.wrap(each["does"], HELP_COLUMNS, initial_indent=INDENT, subsequent_indent=INDENT)
        lines += [each["form"], *told, *(INDENT + _range(parameter) for parameter in each["parameters"])]
    return lines


def _range(parameter: OptimisationParameter) -> str:
    steps = "" if parameter["multiple"] == "1" else f" in steps of {parameter['multiple']}"
    named, least, most = parameter["name"].upper(), parameter["least"], parameter["most"]
    return f"{named}: {least} to {most}{steps}, {parameter['default']} if left out"


# The table that the parser reads by is the one that the help is made of.
hint.__doc__ = (hint.__doc__ or "").replace("{optimisations}", "\n      ".join(_listed(hinting.optimisations())))


def _print_after(show: Callable[..., None], place: Place, *, is_changed: bool, as_json: bool) -> None:
    """Shows what there is now. Where that fails behind a change, the change is made, and the command does not fail."""
    try:
        show(place, as_json=as_json)
    except StripewiseError as error:
        if not is_changed:
            raise
        console.warn(f"{terminal.name(place.name)} is changed, and what it has now cannot be shown: {error}")


def _print_file(place: Place, *, as_json: bool) -> None:
    found = hinting.why(place)
    if as_json:
        console.document(found)
        return
    console.result(f"{terminal.name(place.name)}: version {found['version']}")
    console.result(f"  {', '.join(found['made_with']) or 'no optimisation'}")


def _print(place: Place, *, as_json: bool) -> None:
    found = hinting.hints(place)
    if as_json:
        console.document(found)
        return
    rules = found["layouts"]
    if not found["hints"] and not rules:
        console.result(f"{terminal.name(place.name)}: no hints")
        return
    console.result(f"{terminal.name(place.name)}: version {found['version']}")
    for each in found["hints"]:
        names = "all names" if each["pattern"] is None else terminal.name(each["pattern"])
        console.result(f"  {names}: {', '.join(each['optimisations'])}")
    for rule in rules[:MOST_RULES]:
        console.result(f"  {terminal.name(rule['pattern'])}: layout={rule['layout']}")
    if len(rules) > MOST_RULES:
        console.result(f"  and {len(rules) - MOST_RULES} more rules; --json lists them all")


def _print_why(place: Place, *, as_json: bool) -> None:
    taken, refusing = hinting.why(place), hinting.refusing(place)
    if as_json:
        console.document({**taken, "opens_refused": refusing})
        return
    head = taken["head_bytes"]
    if head is None:
        path = "its inode: all bytes are there"
    elif head == 0 and any(each.startswith("small=") for each in taken["made_with"]):
        path = "the servers: it was longer than what its inode was to hold; cut shorter, it may come back"
    elif head == 0:
        path = "the servers: no byte is in its inode"
    elif taken["size_bytes"] <= head:
        path = f"its inode: it is not larger than {exact_bytes(head)}"
    else:
        path = f"its inode up to {exact_bytes(head)}, and the servers behind that"
    console.result(f"{terminal.name(place.name)}: {path}")
    console.result(f"  because {hinting.reason(taken)}")
    if taken["landed_on"]:
        console.result(f"  it has landed on {taken['landed_on']}, and moves to its place later")
    if taken["reads_ahead"]:
        console.result("  what is open for reading alone is read ahead, as long as the file has no writer")
    if taken["writes_behind"]:
        console.result(
            "  small writes one behind the other are gathered, until stripes are full or a sync or close comes"
        )
    if taken["cached"]:
        console.result("  the kernel of a mount keeps what is read of it, and it cannot be written while it is open so")
    if taken["kept"]:
        console.result(
            "  a kernel keeps what was read of it for an open of this moment, so that it cannot be written now"
        )
    if taken["has_writer"] and (taken["reads_ahead"] or taken["cached"]):
        console.result(
            "  it has a writer now, or is being moved: until that has ended its readers read from the servers"
        )
    if taken["rank"]:
        console.result("  while an orchestrator is at work, its requests wait for those on files of a lower rank")
    if taken["direct_least_bytes"]:
        least = exact_bytes(taken["direct_least_bytes"])
        console.result(f"  requests of {least} and more leave nothing in the page caches of the servers that can do so")
    if taken["rule"] is not None:
        rule = terminal.name(taken["rule"])
        console.result(f"  a new file of its name gets the layout of the rule '{rule}', by `apply` or a hint")
    elif taken["hints_fault"] is not None:
        console.result(f"  a new file of its name gets nothing by the hints of its directory: {taken['hints_fault']}")
    else:
        now = ", ".join(taken["hinted_now"]) or "nothing"
        console.result(
            f"  a new file of its name gets {now} by the hints of its directory, version {taken['hints_version']}"
        )
    for line in _opens(taken, refusing):
        console.result(f"  {line}")


def _opens(taken: PathTaken, refusing: Iterable[str]) -> list[str]:
    """What the last opens took, in lines: for each mount what is open, and each kind of open that it remembers.

    Of the mounts that refuse to say it the reason.
    """
    lines = [f"at {terminal.name(mount)}: only users who may read the file are told of its opens" for mount in refusing]
    for mount in taken["opens"]:
        others = f", {mount['writing']} of them for writing" if mount["writing"] else ""
        is_open = f"{counted(mount['opens'], 'open')} now{others}" if mount["opens"] else "not open now"
        lines.append(f"at {terminal.name(mount['mount'])}: {is_open}")
        lines += [
            f"  the last open {how} took {_taken(last)}"
            for how, last in (("for reading alone", mount["read"]), ("for writing", mount["written"]))
            if last is not None
        ]
        if mount["read"] is None and mount["written"] is None:
            lines.append("  which paths its last opens took is not remembered there")
    lines = lines or ["no mount of its pool is here that could say which paths its last opens took"]
    return [*lines, "programs that use `import stripewise` alone know what they have opened"]


def _taken(last: OpenTaken) -> str:
    """As in `striped and readahead, not cached: it is longer than the hint says`."""
    said = " and ".join(last["taken"]) or "no path"
    if last["past_the_mount"]:
        said += ", past the mount by its program itself"
    if last["served_by_kernel"]:
        said += ", by the kernel itself without the mount"
    return "; ".join([said, *(f"not {each['path']}: {each['because']}" for each in last["not_taken"])])
