"""Which part of a file is on which servers, before and after, and the rounds with their widths to scale."""

from __future__ import annotations

import altair

from stripewise import _native
from stripewise.report import chart
from stripewise.report.facts import MOST_FILES, Facts, moved, short
from stripewise.report.markup import Markup, paragraph, section, table
from stripewise.units import about_bytes, exact_bytes

NAME, TITLE = "layout", "Layout"
MOST_SERVERS = 128
"""Rows of a map; of more servers those of a tier are one row."""
HEIGHT = 360
"""Of a map with many servers."""
MOST_REGIONS = 24
"""Rounds that are drawn; the table has all."""


def draw(facts: Facts) -> Markup:
    """The layouts of the files that matter most; those that are laid out alike are told of once."""
    if facts.load is None:
        return Markup("")
    bytes_of = {file["file"]: moved(file) for file in facts.access["files"]}
    extents = {file["file"]: file["extent_bytes"] for file in facts.access["files"]}
    ranked = sorted(facts.load["files"], key=lambda file: (file["present"] == file["layout"], -bytes_of[file["file"]]))
    seen: dict[str, list[_native.LoadedFile]] = {}
    for file in ranked:
        seen.setdefault(_shape(file), []).append(file)
    content = Markup("")
    for alike in list(seen.values())[:MOST_FILES]:
        content += _file(facts, alike[0], len(alike) - 1, max(extents[alike[0]["file"]], 1))
    if len(seen) > MOST_FILES:
        content += paragraph(f"{len(seen) - MOST_FILES:,} more kinds of layouts are in the layout file.", kind="note")
    return section(NAME, TITLE, content)


def _shape(file: _native.LoadedFile) -> str:
    """Tiers and widths, without the numbers of servers: equal for files that are laid out alike."""

    def side(regions: list[_native.RegionInfo]) -> list[tuple[int, list[tuple[str, int]]]]:
        return [
            (region["offset"], [(_tier(stripe["server"]), stripe["width_bytes"]) for stripe in region["stripes"]])
            for region in regions
        ]

    return repr((side(file["present"]), side(file["layout"])))


def _tier(server: str) -> str:
    return server.rpartition(".")[0] or server


def _file(facts: Facts, file: _native.LoadedFile, others: int, extent: int) -> Markup:
    changes = file["present"] != file["layout"]
    sides = {"now": file["present"]} | ({"with the layout": file["layout"]} if changes else {})
    # Regions that begin beyond what was used are shown, too: a little of them.
    last = max(region["offset"] for regions in sides.values() for region in regions)
    extent = max(extent, last + last // 8)
    title = short(file["path"])
    content = Markup("<h3>{}</h3>\n").format(title)
    if others:
        content += paragraph(f"{others:,} more files are laid out alike, on these or other servers.", kind="note")
    if not file["known"]:
        content += paragraph("The log does not say where it is now: taken to be the default.", kind="note")
    for name, regions in sides.items():
        content += _map(facts, f"{title}, {name}: offset by server", regions, extent)
    content += _rounds(facts, title, sides, extent)
    return content


def _colours(facts: Facts) -> dict[str, str]:
    tiers = ["meta"] if facts.load is None else [*facts.load["tiers"], "meta"]
    return {tier: chart.TIERS[number % len(chart.TIERS)] for number, tier in enumerate(tiers)}


def _legend(facts: Facts, regions: list[_native.RegionInfo], note: str) -> Markup:
    used = {_tier(stripe["server"]) for region in regions for stripe in region["stripes"]}
    return chart.key([(colour, tier) for tier, colour in _colours(facts).items() if tier in used], note)


def _map(facts: Facts, title: str, regions: list[_native.RegionInfo], extent: int) -> Markup:
    """Offset across, a row a server; the fuller a cell the larger the server's share of the region."""
    assert facts.load is not None
    colours = _colours(facts)
    servers = [server["name"] for server in facts.load["servers"]]
    by_tier = len(servers) > MOST_SERVERS
    rows: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    ends = [*(region["offset"] for region in regions[1:]), extent]
    for number, (region, end) in enumerate(zip(regions, ends, strict=True)):
        width = sum(stripe["width_bytes"] for stripe in region["stripes"])
        shares: dict[str, float] = {}
        for stripe in region["stripes"]:
            row = _tier(stripe["server"]) if by_tier else stripe["server"]
            shares[row] = shares.get(row, 0.0) + stripe["width_bytes"] / width
        most = max(shares.values())
        for row, share in shares.items():
            tier = row if by_tier else _tier(row)
            rows.append(
                {"from": region["offset"], "to": end, "row": row, "tier": tier, "full": 0.25 + 0.75 * share / most}
            )
        labels.append(
            {"at": (region["offset"] + end) / 2, "name": f"R{number}", "wide": (end - region["offset"]) / extent}
        )
    # Where files are on the metadata tier, it stands among the servers already: a row drawn twice leaves the picture.
    order = list(dict.fromkeys([*(facts.load["tiers"] if by_tier else servers), "meta"]))
    order = [name for name in order if name != "meta" or any(row["row"] == "meta" for row in rows)]

    def draw_at(width: int) -> chart.Chart:
        x = altair.X(
            "from:Q",
            scale=altair.Scale(domain=[0, extent], nice=False),
            axis=chart.byte_axis("offset", extent, chart.ticks_of(width)),
        )
        y = altair.Y("row:N", scale=altair.Scale(domain=order, padding=0.12), title=None)
        colour = altair.Color("tier:N", scale=altair.Scale(domain=list(colours), range=list(colours.values())))
        opacity = altair.Opacity("full:Q", scale=None)
        cells = altair.Chart(chart.values(rows)).mark_bar(stroke=chart.PAPER, strokeWidth=1)
        cells = cells.encode(x=x, x2="to:Q", y=y, color=colour, opacity=opacity)
        # A label that would lie on its neighbour is left out: the table has all.
        room = 26 / (width - 60)
        named = [label for label in labels if isinstance(label["wide"], float) and label["wide"] > room]
        texts = altair.Chart(chart.values(named or [{"at": 0, "name": ""}])).mark_text(
            dy=-5, baseline="bottom", color=chart.INK, fontSize=11
        )
        texts = texts.encode(x="at:Q", y=altair.value(0), text="name:N")
        return altair.layer(cells, texts).properties(
            height=altair.Step(26 if by_tier else max(3, min(16, HEIGHT / len(order))))
        )

    numbers = [
        [
            f"R{number}",
            exact_bytes(region["offset"]),
            "the end" if number + 1 == len(regions) else exact_bytes(end),
            about_bytes(sum(stripe["width_bytes"] for stripe in region["stripes"])),
            " ".join(region["round"]),
        ]
        for number, (region, end) in enumerate(zip(regions, ends, strict=True))
    ]
    used = len({stripe["server"] for region in regions for stripe in region["stripes"]})
    note = "the fuller, the larger the share of the region"
    return chart.figure(
        title,
        f"Map of {len(regions)} regions over {used} servers, offset across, "
        f"a row for each {'tier' if by_tier else 'server'}. The table lists every region.",
        draw_at,
        _wordy(["region", "from", "to", "round", "servers and widths"], numbers, "Regions"),
        legend=_legend(facts, regions, note),
    )


def _wordy(columns: list[str], rows: list[list[str]], caption: str) -> Markup:
    return table(columns, rows, caption, left=len(columns))


def _rounds(facts: Facts, title: str, sides: dict[str, list[_native.RegionInfo]], extent: int) -> Markup:
    """One round a region, all drawn equally long: the widths of its stripes to scale."""
    colours = _colours(facts)
    rows: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    numbers = []
    order: list[str] = []
    for side, regions in sides.items():
        for number, region in enumerate(regions):
            total = sum(stripe["width_bytes"] for stripe in region["stripes"])
            name = f"{side if len(sides) == 1 else 'now' if side == 'now' else 'then'}, R{number}"
            at = 0.0
            for stripe in region["stripes"]:
                share = stripe["width_bytes"] / total
                numbers.append([name, stripe["server"], exact_bytes(stripe["width_bytes"]), f"{share:.1%}"])
                if len(order) < MOST_REGIONS:
                    cell = {"row": name, "from": at, "to": at + share, "tier": _tier(stripe["server"])}
                    rows.append(cell)
                    text = exact_bytes(stripe["width_bytes"])
                    labels.append({"row": name, "at": at + share / 2, "text": text, "share": share})
                at += share
            if len(order) < MOST_REGIONS:
                order.append(name)

    def draw_at(width: int) -> chart.Chart:
        x = altair.X(
            "from:Q",
            scale=altair.Scale(domain=[0, 1], nice=False),
            axis=altair.Axis(title="share of the round", format="%"),
        )
        y = altair.Y("row:N", scale=altair.Scale(domain=order, padding=0.15), title=None)
        colour = altair.Color("tier:N", scale=altair.Scale(domain=list(colours), range=list(colours.values())))
        bars = altair.Chart(chart.values(rows)).mark_bar(stroke=chart.PAPER, strokeWidth=1)
        bars = bars.encode(x=x, x2="to:Q", y=y, color=colour)
        fits = [
            label
            for label in labels
            if isinstance(label["share"], float) and label["share"] * (width - 80) > 6.5 * len(str(label["text"])) + 4
        ]
        texts = altair.Chart(chart.values(fits or [{"row": order[0], "at": 0, "text": ""}]))
        texts = texts.mark_text(color="#000", fontSize=10.5).encode(x="at:Q", y=y, text="text:N")
        return altair.layer(bars, texts).properties(height=altair.Step(24))

    every = [region for regions in sides.values() for region in regions]
    cut = "" if len(every) <= MOST_REGIONS else f"; the first {MOST_REGIONS} of {len(every)}"
    return chart.figure(
        f"{title}: one round of each region, widths to scale",
        f"Bars of {len(order)} rounds{cut}, each divided by the widths of its stripes. The table lists every stripe.",
        draw_at,
        _wordy(["region", "server", "width", "share"], numbers, "Stripes in the order of their rounds"),
        legend=_legend(facts, every, f"the pattern repeats through the region{cut}"),
    )
