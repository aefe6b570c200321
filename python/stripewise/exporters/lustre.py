"""Lustre: composite files, a component for each region, with pools, data on the metadata target and repeated OSTs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from stripewise.exporters import lustre_options, lustre_yaml
from stripewise.exporters.exporter import (
    KIB64,
    META,
    Names,
    Place,
    RefusedError,
    Region,
    Rounds,
    Source,
    Translation,
    distinct,
    mean_width,
    rounded,
    widths_text,
)
from stripewise.exporters.lustre_layout import (
    DOM_DEFAULT,
    MOST_COMPONENTS,
    MOST_DOM,
    MOST_LISTED,
    MOST_STRIPE,
    Component,
    check,
)
from stripewise.exporters.shell import Command, command
from stripewise.units import exact_bytes

FEW_OBJECTS = 4
"""Objects a server and round that a coarse ratio of widths may have; the exact one may take many more."""

Piece = tuple[Component, tuple[tuple[str, int], ...]]
"""A component, and the servers and bytes of its stripes as far as the model knows them."""


class Lustre:
    """A component a region; widths that differ by OSTs that are listed several times."""

    name = "lustre"
    title = "Lustre"

    def __init__(self, *, as_yaml: bool = False) -> None:
        """With `as_yaml` files get a YAML template, not options."""
        self.as_yaml = as_yaml

    def translations(self, source: Source, names: Names) -> list[Translation[tuple[Component, ...]]]:
        """Widths by repeated OSTs, exactly and coarsely; or one tier a region, its greatest or always the same."""
        found, refusals = [], []
        mixed = any(len(set(widths)) > 1 or len(region.tiers) > 1 for region, widths in _data(source))
        ways: list[tuple[str, str | None]] = []
        if not mixed or all(names.target(server) is not None for region, _ in _data(source) for server in _of(region)):
            ways += [("exact", None), ("coarse", None)]
        if mixed:
            ways += [("tier", tier) for tier in (None, *source.tiers)]
        for way, tier in ways:
            try:
                found.append(self._translation(source, names, way, tier))
            except RefusedError as refused:
                refusals.append(refused)
        if not found:
            raise refusals[0]
        return distinct(found)

    def _translation(
        self, source: Source, names: Names, way: str, tier: str | None
    ) -> Translation[tuple[Component, ...]]:
        losses: list[str] = []
        if way == "tier" and any(len(region.tiers) > 1 for region in source.regions):
            which = "the one with the greatest share" if tier is None else f"{tier} where it stands"
            losses.append(f"one tier in each region, {which}: OSTs of several need --targets")
        pieces: list[Piece] = []
        for at, region in enumerate(source.regions):
            piece = self._piece(source, names, at, region, way, tier, losses)
            if piece is not None:
                pieces.append(piece)
        pieces = _aligned(pieces, losses)
        pieces = _few(pieces, losses)
        components = tuple(component for component, _ in pieces)
        check(components)
        rounds = tuple((component.start, stripes) for component, stripes in pieces)
        return Translation(components, Rounds(rounds), tuple(dict.fromkeys(losses)))

    def _piece(
        self, source: Source, names: Names, at: int, region: Region, way: str, tier: str | None, losses: list[str]
    ) -> Piece | None:
        """The component of a region, ends not yet aligned; `None` where the next or last one takes its bytes."""
        if not region.tiers:
            if at > 0 or region.end is None:
                losses.append(f"{region.text} is not on the metadata tier: only a file's first bytes can be")
                return None
            end = min(rounded(region.end, KIB64), MOST_DOM)
            if end != region.end:
                losses.append(f"the metadata tier holds {exact_bytes(end)} instead of {exact_bytes(region.end)}")
            if end > DOM_DEFAULT:
                losses.append(
                    f"servers cut data on the metadata target at lod.*.dom_stripesize, {exact_bytes(DOM_DEFAULT)} "
                    f"unless it was raised to {exact_bytes(end)}"
                )
            return Component(0, end, end, 0, is_mdt=True), ((META, end),)
        if region.has_meta:
            losses.append(f"no bytes of {region.text} on the metadata tier: they were to be among others")
        tiers = region.tiers
        greatest = max(tiers, key=lambda name: sum(width for _, width in tiers[name]))
        stripes = (
            tuple(tiers[tier if tier is not None and tier in tiers else greatest])
            if way == "tier"
            else tuple(stripe for stripe in region.stripes if stripe[0] != META)
        )
        unit, repeats = _ratio(stripes, way, losses)
        servers = [server for (server, _), times in zip(stripes, repeats, strict=True) for _ in range(times)]
        known = [names.target(server) for server in servers]
        osts = tuple(_index(target) for target in known if target is not None)
        of = {server.rpartition(".")[0] for server in servers}
        pool = names.pool(next(iter(of))) if len(of) == 1 and not osts else None
        if not osts and len(servers) < len(names.all_servers(next(iter(of)), servers)):
            losses.append(f"Lustre chooses which {len(servers)} OSTs of the pool")
        if len(servers) > len(stripes):
            losses.append(f"{len(servers)} objects for {len(stripes)} servers in {region.text}: one more request each")
        component = Component(region.start, region.end, unit, len(servers), pool, osts)
        return component, tuple((server, unit) for server in servers)

    def commands(self, native: tuple[Component, ...], place: Place) -> list[Command]:
        """`lfs setstripe`, or `lfs migrate` for a file that is there."""
        check(native)
        if self.as_yaml:
            if place.is_directory or place.existing:
                raise RefusedError(
                    "a YAML template is for a new file: leave out --yaml for directories and existing files"
                )
            # lfs reads the template by its name.
            return [Command(("lfs", "setstripe", "--yaml=/dev/stdin", place.path), lustre_yaml.write(native))]
        verb = "migrate" if place.existing and not place.is_directory else "setstripe"
        return [command("lfs", verb, *lustre_options.write(native), place.path)]

    def verify(self, native: tuple[Component, ...], place: Place) -> list[Command]:
        """`lfs getstripe`: the components as YAML; of a directory its default."""
        return [command("lfs", "getstripe", *(["-d"] if place.is_directory else []), "--yaml", place.path)]


def _data(source: Source) -> list[tuple[Region, list[int]]]:
    """The regions with servers other than the metadata tier, and those servers' widths."""
    return [(region, [w for s, w in region.stripes if s != META]) for region in source.regions if region.tiers]


def _of(region: Region) -> list[str]:
    return [server for server, _ in region.stripes if server != META]


def _index(target: str) -> int:
    if not (target.isascii() and target.isdecimal()) or int(target) > 65_503:
        raise RefusedError(f"{target!r} is no index of an OST: `lfs osts` lists them, --targets hdd=0-5 names them")
    return int(target)


def _ratio(stripes: Sequence[tuple[str, int]], way: str, losses: list[str]) -> tuple[int, list[int]]:
    """One stripe size, and how often each server stands in the round."""
    if way == "tier" or len({width for _, width in stripes}) == 1:
        mean = mean_width(stripes)
        unit, repeats = min(rounded(mean, KIB64), MOST_STRIPE), [1] * len(stripes)
    elif way == "exact":
        widths = [rounded(width, KIB64) for _, width in stripes]
        unit = gcd(*widths)
        repeats = [width // unit for width in widths]
        if sum(repeats) > MOST_LISTED:
            raise RefusedError(
                f"widths of {widths_text(stripes)} need {sum(repeats)} objects, at most {MOST_LISTED} can be listed"
            )
        if unit > MOST_STRIPE:
            part = -(-unit // MOST_STRIPE)
            while unit % part or unit // part % KIB64:
                part += 1
            unit, repeats = unit // part, [times * part for times in repeats]
    else:
        unit, repeats = _coarse([width for _, width in stripes])
    got = [unit * times for times in repeats]
    if any(width != wanted for width, (_, wanted) in zip(got, stripes, strict=True)):
        text = ", ".join(exact_bytes(width) for width in dict.fromkeys(got))
        losses.append(f"widths are multiples of 64KiB in a ratio of integers: {text} instead of {widths_text(stripes)}")
    return unit, repeats


def _coarse(widths: Sequence[int]) -> tuple[int, list[int]]:
    """The stripe size whose multiples come nearest to the widths with few objects: least greatest relative error."""
    least = min(widths)
    best: tuple[float, int, list[int]] | None = None
    for part in range(1, FEW_OBJECTS + 1):
        unit = min(rounded(-(-least // part), KIB64), MOST_STRIPE)
        repeats = [max(round(width / unit), 1) for width in widths]
        if sum(repeats) > min(FEW_OBJECTS * len(widths), MOST_LISTED):
            continue
        error = max(abs(unit * times / width - 1) for times, width in zip(repeats, widths, strict=True))
        if best is None or error < best[0]:
            best = (error, unit, repeats)
    if best is None:
        raise RefusedError(f"widths from {exact_bytes(least)} to {exact_bytes(max(widths))} are in no small ratio")
    return best[1], best[2]


def _aligned(pieces: list[Piece], losses: list[str]) -> list[Piece]:
    """Each end at a multiple of its own component's stripe; what gets no bytes by that is left out."""
    if not pieces or all(component.is_mdt for component, _ in pieces):
        raise RefusedError(
            "a whole file on the metadata tier: Lustre ends data on the metadata target at 1GiB at the latest, so the "
            "layout needs a region on OSTs after it"
        )
    done: list[Piece] = []
    for at, (component, stripes) in enumerate(pieces):
        start = done[-1][0].end if done else 0
        assert start is not None
        if at + 1 == len(pieces):
            done.append((replace(component, start=start, end=None), stripes))
            break
        wanted = pieces[at + 1][0].start if not component.is_mdt else component.end
        assert wanted is not None
        end = rounded(wanted, component.unit)
        if end != wanted:
            losses.append(f"an end is a multiple of its stripe: {exact_bytes(end)} instead of {exact_bytes(wanted)}")
        if end <= start or end >= 1 << 63:
            losses.append(f"no component for [{exact_bytes(start)}, {exact_bytes(wanted)}): shorter than its stripe")
            continue
        done.append((replace(component, start=start, end=end), stripes))
    return done


def _few(pieces: list[Piece], losses: list[str]) -> list[Piece]:
    """Neighbours that are alike as one; of more than `MOST_COMPONENTS` the shortest go to the one before."""
    merged = [pieces[0]]
    for component, stripes in pieces[1:]:
        last, last_stripes = merged[-1]
        if replace(last, start=component.start, end=component.end) == component and last_stripes == stripes:
            merged[-1] = (replace(last, end=component.end), stripes)
        else:
            merged.append((component, stripes))
    if len(merged) > MOST_COMPONENTS:
        losses.append(f"{len(merged)} regions in {MOST_COMPONENTS} components: the shortest are as the one before")
    while len(merged) > MOST_COMPONENTS:
        # The first has none before, the second may have one on the metadata target before it, the last has no end.
        lengths = [(c.end or 0) - c.start for c, _ in merged[:-1]]
        at = min(range(2, len(lengths)), key=lambda index: lengths[index])
        before, stripes = merged[at - 1]
        end = merged[at][0].end
        assert end is not None
        end -= end % before.unit
        if before.end is not None and end > before.end:
            merged[at - 1] = (replace(before, end=end), stripes)
        following, next_stripes = merged[at + 1]
        start = merged[at - 1][0].end
        assert start is not None
        merged[at + 1] = (replace(following, start=start), next_stripes)
        del merged[at]
    return merged
