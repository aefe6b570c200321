"""Advice on a terminal: what is wrong, what to do, what it gains and how sure that is; then the figures."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stripewise.cli import console
from stripewise.cli.opening import show_lines
from stripewise.units import about_bytes, counted, exact_bytes, ratio

if TYPE_CHECKING:
    from stripewise.api.advice import Advice, Native
    from stripewise.api.documents import (
        AdviceDocument,
        AdviseCluster,
        AdviseFile,
        AdviseFinding,
        AdviseGain,
        AdvisePlaced,
        AdviseSpace,
    )

CACHED = "no server: the node's memory (page cache) gave or took most of the bytes"
ROWS = 8
"""Kinds of files, and findings, that are printed; `--json` has all."""
COMMANDS = 6
"""Commands that are printed; a script has all."""
LOSSES = 3
"""Losses that are printed."""
LOSS = 240
"""Characters of one: a layout of hundreds of servers may lose a width on each."""
GRAVE = 2
"""Findings that are told first."""
LITTLE = 0.01
"""Share of the run time."""
STRIPES = 2
"""Entries of a round that are printed."""
SEVERITIES = ("high", "medium", "low")


def show(made: Advice, log: Sequence[str], cluster: Path | None) -> None:
    """Prints it, the most important lines first; `log` is the log with the options that choose from it."""
    advice, native = made.document, made.native
    show_lines(made.heading)
    found = _findings(advice)
    _verdict(advice, made.then, made.unchanged, found)
    if advice["files"]:
        console.result("")
        _files(advice)
    rest = [one for one in found if one not in _told(found)]
    if rest:
        console.result("")
        console.result("also, beside the layout:")
        for severity, words, paths, mend in rest[:ROWS]:
            where = "the whole run" if paths[0] is None else _and_more(paths)
            _say(f"{severity}: {where}: {words}", 2)
            for remedy in mend:
                _say(f"- {remedy}", 4)
        if len(rest) > ROWS:
            console.result(f"  and {len(rest) - ROWS} more, see --json")
    if advice["total"]["change"]:
        console.result("")
        console.result("the interval allows for:")
        for reason in advice["total"]["reasons"]:
            _say(reason, 2)
        _space(advice["total"]["space"])
    if native is not None and native.is_worth_it:
        _native_commands(native, advice, log, cluster)
    for line in made.hint_lines:
        console.result(line)


Found = tuple[str, str, list[str | None], list[str]]
"""Severity, words, paths that it is of, remedies."""


def _findings(advice: AdviceDocument) -> list[Found]:
    """The gravest first; of one kind the gravest is told, with the paths of all."""
    every: list[tuple[str | None, AdviseFinding]] = [
        *((None, finding) for finding in advice["total"]["findings"]),
        *((row["path"], finding) for row in advice["files"] for finding in row["findings"]),
    ]
    # What is said of the whole run is not said again of its files.
    of_run = {finding["kind"] for path, finding in every if path is None}
    alike: dict[str, Found] = {}
    for path, finding in sorted(every, key=lambda one: SEVERITIES.index(one[1]["severity"])):
        if path is not None and finding["kind"] in of_run:
            continue
        first = alike.setdefault(finding["kind"], (finding["severity"], finding["words"], [], finding["mend"]))
        first[2].append(path)
    return list(alike.values())


def _told(found: list[Found]) -> list[Found]:
    """Those that are told first of all."""
    return [one for one in found if one[0] == "high"][:GRAVE]


def _verdict(advice: AdviceDocument, then: str | None, unchanged: str, found: list[Found]) -> None:
    total, cluster = advice["total"], advice["cluster"]
    grave = _told(found)
    for _, words, paths, mend in grave:
        where = "" if paths[0] is None else f"{_and_more(paths)}: "
        _say(f"wrong: {where}{words}", 0)
        for remedy in mend[:2]:
            _say(f"do: {remedy}", 2)
    if not grave:
        console.result("wrong: nothing grave" + (", as I/O is under 1 % of the run" if _is_little(advice) else ""))
    if then is not None:
        files = sum(row["files"] for row in advice["files"] if row["change"])
        _say(f"layout: give {counted(files, 'file')} another one (below): {then}", 0)
        if total["gain"]["low"] < 1:
            _say("these files gain beyond doubt, all files together perhaps nothing", 2)
    else:
        _say(f"layout: {unchanged}", 0)
    if advice["lacking"] is not None:
        return
    tiers = ", ".join(
        f"{tier['servers']} {tier['name']}" + (f" (taken for {tier['preset']})" if tier["preset"] else "")
        for tier in cluster["tiers"]
    )
    whose = "that the log shows" if cluster["found"] else f"of '{cluster['name']}'"
    _say(f"servers {whose}: {tiers}{_in_all(cluster)}; planned by {advice['planner']}", 0)


def _is_little(advice: AdviceDocument) -> bool:
    """Then no finding is grave, whatever it says."""
    job = advice["job"]
    shares = [share for share in (job["io_share"], job["slowest_share"]) if share is not None]
    return job["run_known"] and bool(shares) and max(shares) < LITTLE


def _in_all(cluster: AdviseCluster) -> str:
    """A log shows the targets that its files are on: how many there are is another question."""
    if not cluster["found"]:
        return ""
    targets = cluster["targets"]
    return "; how many there are it does not say" if targets is None else f" of {targets} that there are"


def _files(advice: AdviceDocument) -> None:
    # What should change first: the rest is there to be seen, not to be read.
    files = sorted(advice["files"], key=lambda row: not row["change"])
    console.result(f"files below {_plain(advice['root']) or '.'}:")
    if advice["lacking"] is not None:
        _used(files, advice)
        return
    grid = console.table(["file", "moved", "now", "should be", "gain"], right=["moved", "gain"], paths=["file"])
    for row in files[:ROWS]:
        better, present = row["recommended"], row["present"]
        count = f" ({row['files']:,})" if row["files"] > 1 else ""
        grid.add_row(
            _plain(row["path"]) + count,
            about_bytes(row["read_bytes"] + row["written_bytes"]),
            _layout(present) + ("?" if present["source"] == "default" else ""),
            "no change" if better is None else _layout(better),
            "" if better is None else _gain(row["gain"]),
        )
    console.out.print(grid)
    if len(files) > ROWS:
        console.result(f"and {len(files) - ROWS} kinds of files more, see --json")
    if any(row["present"]["source"] == "default" for row in files):
        console.result("?: the log does not say; taken to be the default")
    for row in files[:ROWS]:
        if row["reason"] is not None:
            _say(f"{_and_more([row['path']])}: {row['reason']}", 0)
    _left_out(advice)
    _waits(files)


def _used(files: list[AdviseFile], advice: AdviceDocument) -> None:
    """Where servers are not known, there is nothing to say of layouts; of waits only what the log's own times show."""
    grid = console.table(["file", "read", "written", "requests"], right=["read", "written", "requests"], paths=["file"])
    for row in files[:ROWS]:
        count = f" ({row['files']:,})" if row["files"] > 1 else ""
        moved = [about_bytes(row["read_bytes"]), about_bytes(row["written_bytes"])]
        grid.add_row(_plain(row["path"]) + count, *moved, f"{row['requests']:,}")
    console.out.print(grid)
    if len(files) > ROWS:
        console.result(f"and {len(files) - ROWS} kinds of files more, see --json")
    _left_out(advice)
    if advice["reproduced"] is not None:
        _waits(files)


def _left_out(advice: AdviceDocument) -> None:
    count = advice["total"]["left_out"]
    if count:
        move = "moves" if count == 1 else "move"
        _say(f"no advice on {counted(count, 'file')} that {move} less than 0.1 % of the bytes", 0)


def _waits(files: list[AdviseFile]) -> None:
    console.result("")
    console.result("what they wait for now:")
    shown = [(row["path"], row["present"]["bottleneck"]) for row in files[:ROWS]]
    cached = sum(of["kind"] == "memory" for _, of in shown)
    waits: dict[str, list[str | None]] = {}
    for path, of in shown:
        # Which share of each came from memory is of no use where it is most of many.
        words = CACHED if of["kind"] == "memory" and cached > 1 else of["words"]
        waits.setdefault(words, []).append(path)
    for words, paths in waits.items():
        _say(f"{_and_more(paths)}: {words}", 2)


def _space(space: list[AdviseSpace]) -> None:
    grid = console.table(["tier", "holds now", "would hold", "capacity"], right=["holds now", "would hold", "capacity"])
    for tier in space:
        limit = tier["capacity_bytes"]
        grid.add_row(
            tier["tier"],
            about_bytes(tier["present_bytes"]),
            about_bytes(tier["recommended_bytes"]),
            "-" if limit is None else about_bytes(limit),
        )
    console.result("")
    console.out.print(grid)


def _native_commands(native: Native, advice: AdviceDocument, log: Sequence[str], cluster: Path | None) -> None:
    exported = native.exported
    console.result("")
    console.result(f"in the commands of {exported.title}:")
    # A control character in a path is quoted for the shell, but not for the terminal: that is for a script.
    shown = [command.text for command in exported.commands if _is_plain(command.text)]
    for text in shown[:COMMANDS]:
        console.command(text)
    more = len(exported.commands) - len(shown[:COMMANDS])
    if more:
        console.result(f"  and {more:,} more: write all to a script, as below")
    for refused in exported.refused[:COMMANDS]:
        _say(f"refused: {_plain(refused)}", 2)
    losses = list(dict.fromkeys(loss for file in exported.files for loss in file.losses))
    for loss in losses[:LOSSES]:
        _say(f"lost: {textwrap.shorten(_plain(loss), LOSS, placeholder=' …')}", 2)
    if len(losses) > LOSSES:
        console.result(f"  lost: {len(losses) - LOSSES} more, said in the script")
    if exported.loss_ratio is not None:
        words = f"cost of what is lost: {exported.loss_ratio:.3f} times the layout's time, predicted"
        _say(f"{words} ({exported.workload})", 2)
    for words in native.assumed:
        _say(f"assumed: {words}", 2)
    verify = [command.text for command in exported.verify if _is_plain(command.text)]
    if verify:
        console.result("  verify what was set:")
        console.command(verify[0])
    console.result("  all of it as a script:")
    servers = ["--cluster", str(cluster)] if cluster is not None else []
    # Servers that only the log shows have no pools.
    pools = [word for tier in advice["cluster"]["tiers"] for word in ("--pool-map", f"{tier['name']}=")]
    priced = ["--trace", log[0], "--trace-root", advice["root"]]
    of_export = [*servers, *priced] if servers else ["--to", exported.to, *pools]
    existing = ["--existing"] if native.existing else []
    below = ["--root", advice["root"]]
    for command in (
        ["stripewise", "advise", *log, *servers, "-o", "new.layout"],
        ["stripewise", "export", "new.layout", *of_export, *below, *existing, "-o", "set.sh"],
    ):
        console.command(_plain(shlex.join(command)))


def _say(text: str, indent: int) -> None:
    console.result(text, indent)


def _is_plain(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def _plain(text: str) -> str:
    """What a terminal may be given of a name: control characters are written out."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _and_more(paths: Iterable[str | None]) -> str:
    """The first of some paths, and how many more there are."""
    every = [path for path in paths if path is not None]
    name = console.short(_plain(every[0]))
    return name if len(every) == 1 else f"{name} and {len(every) - 1} more"


def _layout(placed: AdvisePlaced) -> str:
    """`hdd.0-5:64KiB ssd.0-1:192KiB`, with the number of regions where there are several."""
    regions = placed["layout"]
    parts = regions[0]["round"]
    text = " ".join(parts[:STRIPES]) + (f" +{len(parts) - STRIPES}" if len(parts) > STRIPES else "")
    if len(regions) > 1:
        text += f", {len(regions) - 1} more from {exact_bytes(regions[1]['offset'])}"
    return text + (", others alike" if placed["spread"] else "")


def _gain(gain: AdviseGain) -> str:
    return f"{ratio(gain['ratio'])} ({gain['low']:.2f} to {gain['high']:.2f})"
