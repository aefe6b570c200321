"""OrangeFS: one distribution for a file, with a strip for every server if need be, by hints of the directory."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from stripewise.exporters.copying import before_copy, copied, new_name
from stripewise.exporters.exporter import (
    META,
    Names,
    Place,
    RefusedError,
    Region,
    Rounds,
    Source,
    Translation,
    distinct,
    single_region_losses,
)
from stripewise.exporters.shell import Command, command
from stripewise.units import exact_bytes

MOST_PARAMS = 1023
"""`dist_params` is read into 1,024 bytes (`PVFS_REQ_LIMIT_DIST_BYTES`), its closing NUL with it; the varstrip parser
alone would take as many without the key `strips:`."""

MOST_DATAFILES = 1023
"""A file has fewer than 1,024 datafiles (`PVFS_REQ_LIMIT_DFILE_COUNT`)."""

MOST_SERVER_LIST = 4095
"""`server_list` is read into 4,096 bytes (`PVFS_SYS_LIMIT_LAYOUT`)."""

MOST_ROUNDS = 1 << 32
"""`varstrip_dist` numbers rounds with 32 bits."""

MOST_SIZE = (1 << 63) - 1
LAYOUT_LIST = "4"
"""`PVFS_SYS_LAYOUT_LIST`: datafiles in the order of the server list."""

_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/\[\]-]*")


@dataclass(frozen=True)
class Distribution:
    """The hints that a directory gives to new files."""

    name: str
    """`simple_stripe`, `varstrip_dist` or `twod_stripe`."""
    params: str
    datafiles: int
    servers: tuple[str, ...] = ()
    """Addresses of the datafiles' servers in order; the client chooses where there are none."""


class OrangeFS:
    """A strip for every server (`varstrip_dist`), equal strips, or groups of servers in turn (`twod_stripe`)."""

    name = "orangefs"
    title = "OrangeFS"

    def translations(self, source: Source, names: Names) -> list[Translation[Distribution]]:
        """Groups where the regions are groups in turn; then each region for the whole file, the last first."""
        found, refusals = [], []
        groups = _groups(source)
        if groups is not None:
            found.append(self._two_dimensional(source, names, *groups))
        for kept in range(len(source.regions) - 1, -1, -1):
            try:
                found.append(self._one_region(source, names, kept))
            except RefusedError as refused:
                refusals.append(refused)
        if not found:
            raise refusals[0]
        return distinct(found)

    def _one_region(self, source: Source, names: Names, kept: int) -> Translation[Distribution]:
        region = source.regions[kept]
        stripes = tuple(stripe for stripe in region.stripes if stripe[0] != META)
        if not stripes:
            raise RefusedError(
                "a strip on the metadata server is not chosen by a distribution: name a tier for the file"
            )
        losses = single_region_losses(source, kept)
        is_equal = len({width for _, width in stripes}) == 1
        if is_equal:
            name, params = "simple_stripe", f"strip_size:{stripes[0][1]}"
        else:
            name = "varstrip_dist"
            params = "strips:" + ";".join(f"{at}:{_strip(width)}" for at, (_, width) in enumerate(stripes))
            round_bytes = sum(width for _, width in stripes)
            if round_bytes * MOST_ROUNDS <= MOST_SIZE:
                losses.append(f"no byte beyond {exact_bytes(round_bytes * MOST_ROUNDS)}: rounds are counted in 32 bits")
        native = Distribution(name, params, len(stripes), self._servers(source, names, stripes, is_equal))
        check(native)
        return Translation(native, Rounds(((0, stripes),)), tuple(losses))

    def _two_dimensional(self, source: Source, names: Names, groups: int, factor: int) -> Translation[Distribution]:
        stripes = tuple(stripe for region in source.regions[:groups] for stripe in region.stripes)
        width = stripes[0][1]
        params = f"strip_size:{width},num_groups:{groups},group_strip_factor:{factor}"
        native = Distribution("twod_stripe", params, len(stripes), self._servers(source, names, stripes, True))
        check(native)
        length = source.regions[1].start
        last = source.regions[-1].start
        losses = [f"from {exact_bytes(last + length)} on the groups go on in turn: the last region ends there"]
        # Beyond the last region's length the model takes it as the layout has it.
        rounds = tuple((region.start, region.stripes) for region in source.regions)
        return Translation(native, Rounds(rounds), tuple(losses))

    def _servers(
        self, source: Source, names: Names, stripes: tuple[tuple[str, int], ...], is_equal: bool
    ) -> tuple[str, ...]:
        known = [names.target(server) for server, _ in stripes]
        if all(target is not None for target in known):
            return tuple(target for target in known if target is not None)
        tiers = [tier for tier, count in names.servers.items() if count] or source.tiers
        used = {server for server, _ in stripes}
        if len(tiers) == 1 and is_equal and len(used) == len(names.all_servers(tiers[0], sorted(used))):
            return ()
        raise RefusedError(
            "OrangeFS knows servers by their addresses, and this layout is not the same on all: name them in the "
            "pool's order, such as --targets hdd=tcp://io0:3334,tcp://io1:3334"
        )

    def commands(self, native: Distribution, place: Place) -> list[Command]:
        """Hints on the directory; a file is made in a directory of its own that has them, and gets its name then."""
        check(native)
        if place.is_directory:
            return _hints(native, place.path)
        workshop = new_name(place.path)
        made = posixpath.join(workshop, "file")
        begin = [command("mkdir", workshop), *_hints(native, workshop), command("touch", made)]
        if place.existing:
            return [before_copy(place.path), *begin, *copied(place.path, made), command("rmdir", workshop)]
        absent = command("test", "!", "-e", place.path)
        return [absent, *begin, command("mv", made, place.path), command("rmdir", workshop)]

    def verify(self, native: Distribution, place: Place) -> list[Command]:
        """`pvfs2-viewdist` for a file; of a directory the hints."""
        if not place.is_directory:
            return [command("pvfs2-viewdist", "-f", place.path)]
        keys = ["dist_name", "dist_params", "num_dfiles", *(["layout", "server_list"] if native.servers else [])]
        return [command("getfattr", "-n", f"user.pvfs2.{key}", place.path) for key in keys]


def _hints(native: Distribution, directory: str) -> list[Command]:
    values = [
        ("dist_name", native.name),
        ("dist_params", native.params),
        ("num_dfiles", str(native.datafiles)),
    ]
    if native.servers:
        values += [("layout", LAYOUT_LIST), ("server_list", _server_list(native.servers))]
    return [command("setfattr", "-n", f"user.pvfs2.{key}", "-v", value, directory) for key, value in values]


def _server_list(servers: tuple[str, ...]) -> str:
    return " ".join([f"{len(servers):05d}", *servers])


def strips(native: Distribution) -> list[tuple[int, int]]:
    """The strips of one round as (datafile, bytes), as OrangeFS reads the parameters.

    Raises `RefusedError` for what it does not read.
    """
    if native.name == "varstrip_dist":
        if not native.params.startswith("strips:"):
            raise RefusedError("varstrip_dist takes nothing but strips:")
        read = []
        for part in native.params.removeprefix("strips:").split(";"):
            match = re.fullmatch(r"(\d+):(\d+)([KMG]?)", part)
            if match is None or int(match[2]) == 0:
                raise RefusedError(f"varstrip_dist: {part!r} is no datafile with a size")
            read.append((int(match[1]), int(match[2]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[3]]))
        if sorted({datafile for datafile, _ in read}) != list(range(native.datafiles)):
            raise RefusedError("varstrip_dist: strips must name all datafiles from 0 on")
        return read
    values = dict(part.split(":") for part in native.params.split(","))
    size = int(values.pop("strip_size", "0"))
    if size <= 0:
        raise RefusedError("a strip size is at least 1")
    if native.name == "simple_stripe" and not values:
        return [(datafile, size) for datafile in range(native.datafiles)]
    if native.name == "twod_stripe" and set(values) == {"num_groups", "group_strip_factor"}:
        groups, factor = int(values["num_groups"]), int(values["group_strip_factor"])
        if not 1 <= groups <= native.datafiles or not 1 <= groups * factor < 1 << 32:
            raise RefusedError(f"twod_stripe: {groups} groups of {native.datafiles} servers, {factor} strips each")
        each = native.datafiles // groups
        bounds = [group * each for group in range(groups)] + [native.datafiles]
        members = [list(range(bounds[group], bounds[group + 1])) for group in range(groups)]
        # A group's rounds follow each other: of many they are told once, with the factor as their number.
        return [(datafile, size * factor) for group in members for datafile in group]
    raise RefusedError(f"OrangeFS has no distribution {native.name} with {native.params}")


def check(native: Distribution) -> None:
    """Raises `RefusedError` for what OrangeFS does not take."""
    if not 1 <= native.datafiles <= MOST_DATAFILES:
        raise RefusedError(f"{native.datafiles} servers: a file has at most {MOST_DATAFILES} datafiles")
    if len(native.params) > MOST_PARAMS:
        raise RefusedError(
            f"the widths of {native.datafiles} servers take {len(native.params)} characters: dist_params has at most "
            f"{MOST_PARAMS}, about 100 servers; use fewer servers, or equal widths"
        )
    if any(size > MOST_SIZE for _, size in strips(native)):
        raise RefusedError("a strip is longer than a file can be")
    if native.servers:
        if len(native.servers) != native.datafiles:
            raise RefusedError(f"{len(native.servers)} addresses for {native.datafiles} datafiles")
        if len(_server_list(native.servers)) > MOST_SERVER_LIST:
            raise RefusedError(
                f"the addresses of {native.datafiles} servers are longer than {MOST_SERVER_LIST} characters"
            )
        for address in native.servers:
            if not _ADDRESS.fullmatch(address):
                raise RefusedError(f"{address!r} is no server's address, such as tcp://io0:3334")


def _strip(width: int) -> str:
    """With the suffix that its parser knows. Of one digit alone it would not read one, so there is always a number."""
    for suffix, shift in (("G", 30), ("M", 20), ("K", 10)):
        if width % (1 << shift) == 0:
            return f"{width >> shift}{suffix}"
    return str(width)


def _groups(source: Source) -> tuple[int, int] | None:
    """Number of groups and rounds in each, where the regions are groups of servers in turn."""
    regions = source.regions
    if len(regions) < 2:
        return None
    length = regions[1].start
    first = regions[0].stripes
    width, size = first[0][1], len(first)
    if length % (width * size) or any(region.start != at * length for at, region in enumerate(regions)):
        return None
    if any(len(region.stripes) != size or any(w != width for _, w in region.stripes) for region in regions):
        return None
    groups = _period(regions)
    members = [server for region in regions[:groups] for server, _ in region.stripes]
    if groups < 2 or META in members or len(set(members)) < len(members):
        return None
    return groups, length // (width * size)


def _period(regions: tuple[Region, ...]) -> int:
    """After how many regions the first one's servers come again, in which all others do likewise; 0 for never."""
    again = (at for at in range(1, len(regions)) if regions[at].stripes == regions[0].stripes)
    period = next(again, len(regions))
    is_turn = all(region.stripes == regions[at % period].stripes for at, region in enumerate(regions))
    return period if is_turn else 0
