"""What file systems make of the commands of an export, limits included.

Each reader is written from its file system's documentation and not from the exporter, so that the two check each other.
It raises `RefusedError` for what the file system would not take.
"""

import re
import shlex

from stripewise.exporters import beegfs, cephfs, lustre_layout, orangefs
from stripewise.exporters.exporter import KIB64, RefusedError
from stripewise.exporters.shell import Command

END = "STRIPEWISE_END"
SUFFIXES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}


def split(script):
    """The commands of a script made of `Command.text` lines and comments.

    Raises `ValueError` where the text is not of that form.
    """
    commands = []
    lines = iter(script.splitlines(keepends=True))
    pending = ""
    for line in lines:
        if not pending and (line.startswith("#") or not line.strip()):
            continue
        pending += line
        body, _, here = pending.rstrip("\n").rpartition(f" <<'{END}'")
        try:
            arguments = tuple(shlex.split(body if body and not here else pending))
        except ValueError:
            continue  # A quoted argument goes on in the next line.
        stdin = None
        if body and not here:
            stdin = ""
            for input_line in lines:
                if input_line in (f"{END}\n", END):
                    break
                stdin += input_line
        commands.append(Command(arguments, stdin))
        pending = ""
    if pending:
        raise ValueError(f"a quoted argument does not end: {pending!r}")
    return commands


def lustre(commands):
    """What `lfs` makes of its options or its template."""
    for read in commands:
        if read.arguments[:2] not in (("lfs", "setstripe"), ("lfs", "migrate")):
            continue
        components = lustre_template(read.stdin) if read.stdin is not None else lustre_options(read.arguments[2:-1])
        lustre_layout.check(components)
        return components
    raise RefusedError("no `lfs setstripe` or `lfs migrate` among the commands")


def lustre_options(options):
    """The components that `lfs` makes of its options, with what a component inherits from the one before."""
    components = []
    inherited = {}
    start = 0
    for end, given in _components(options):
        is_mdt = given.get("-L") == "mdt"
        if is_mdt and set(given) != {"-L"}:
            raise RefusedError("-L mdt stands with no other option")
        values = {**inherited, **given}
        osts = tuple(int(index) for index in values["-o"].split(",")) if "-o" in given else ()
        unit = end if is_mdt else _lfs_size(values.get("-S", ""))
        if unit is None or unit % KIB64 or (end is not None and end % KIB64):
            raise RefusedError("-S and -E are multiples of 64KiB")
        pool = None if is_mdt else values.get("-p")
        count = 0 if is_mdt else int(values.get("-c", "1"))
        if osts and "-c" in values and count != len(osts):
            raise RefusedError(f"stripe_count({count}) != nr_tgts({len(osts)})")
        own_pool = None if pool == "ignore" else pool
        components.append(lustre_layout.Component(start, end, unit, count, own_pool, osts, is_mdt))
        inherited = {} if is_mdt else {key: value for key, value in values.items() if key in ("-S", "-c", "-p")}
        start = end if end is not None else start
    return tuple(components)


def _components(options):
    """End and own options of each component."""
    given = {}
    end = None
    ends = 0
    rest = iter(options)
    for option, value in zip(rest, rest, strict=True):
        if option not in ("-E", "-L", "-c", "-S", "-o", "-p"):
            raise RefusedError(f"lfs setstripe: {option} is not known here")
        if option == "-E":
            if ends:
                yield end, given
            elif given:
                raise RefusedError("-E stands before the options of its component")
            ends, end, given = ends + 1, None if value == "eof" else _lfs_size(value), {}
        else:
            given[option] = value
    yield end, given


def _lfs_size(text):
    """As `llapi_parse_size`, and as `lfs` takes small numbers."""
    match = re.fullmatch(r"(\d+)([KMGTPE]?)", text)
    if match is None:
        raise RefusedError(f"{text!r} is no size")
    count = int(match[1]) << SUFFIXES[match[2]]
    return count * 1024 if count < 4096 else count


def lustre_template(text):
    """The components of a template of `lfs setstripe --yaml`: `lfs` walks over the keys in order."""
    blocks = [{}]
    for line in text.splitlines():
        key, separator, value = line.strip().partition(":")
        if not separator:
            raise RefusedError(f"{line!r} is no line of a template")
        value = value.strip()
        # A component begins at its id once there is a stripe count to close the one before.
        if key == "lcme_id" and "stripe_count" in blocks[-1]:
            blocks.append({})
        if value:
            blocks[-1][key.removeprefix("lmm_")] = value
    start = 0
    components = []
    for block in blocks:
        if not int(block.get("stripe_size", "0")) or "stripe_count" not in block:
            raise RefusedError("every component of a template needs a stripe_count and a stripe_size")
        if int(block.get("lcme_extent.e_start", "0")) != start:
            raise RefusedError("components of a template follow each other")
        text_end = block.get("lcme_extent.e_end", "EOF")
        end = None if text_end in ("EOF", "eof", "-1") else int(text_end)
        is_mdt = block.get("pattern") == "mdt"
        size, count = int(block["stripe_size"]), int(block["stripe_count"])
        components.append(lustre_layout.Component(start, end, size, count, block.get("pool"), (), is_mdt))
        start = end if end is not None else start
    return tuple(components)


def beegfs_of_existing(commands, present):
    """As `of_beegfs`, for a file that exists: a migration changes its pool."""
    pool = present.pool
    for read in commands:
        if read.arguments[:3] != ("beegfs", "entry", "migrate"):
            return of_beegfs(commands)
        _, _, _, from_pools, sources, to_pool, target, _ = read.arguments
        if (from_pools, sources, to_pool) != ("--from-pools", pool, "--pool"):
            raise RefusedError("a file is migrated from the pool that it is in")
        pool = target
    native = beegfs.Striping(present.width_bytes, present.count, pool)
    beegfs.check(native)
    return native


def of_beegfs(commands):
    """What `entry set` and `entry create file` make of their options."""
    for read in commands:
        arguments = list(read.arguments)
        if arguments[:3] == ["beegfs", "entry", "set"] or arguments[:4] == ["beegfs", "entry", "create", "file"]:
            break
    else:
        raise RefusedError("no `beegfs entry set` or `beegfs entry create file` among the commands")
    rest = iter(arguments[3 if arguments[2] == "set" else 4 : -1])
    options = dict(zip(rest, rest, strict=True))
    ids = options.pop("--targets", "")
    if ids and (arguments[2] == "set" or "--pool" in options):
        raise RefusedError("--targets stands with neither `entry set` nor --pool")
    chunk = re.fullmatch(r"(\d+)(|[KMG]i)B?", options.pop("--chunk-size", ""))
    if chunk is None:
        raise RefusedError("--chunk-size is no size")
    native = beegfs.Striping(
        int(chunk[1]) << {"": 0, "Ki": 10, "Mi": 20, "Gi": 30}[chunk[2]],
        int(options.pop("--num-targets", "0")),
        options.pop("--pool", None),
        tuple(ids.split(",")) if ids else (),
    )
    if options:
        raise RefusedError(f"beegfs has no option {', '.join(options)}")
    beegfs.check(native)
    return native


def of_cephfs(commands, present=None):
    """What the metadata server makes of the attributes of a file with the layout `present`, else CephFS's own.

    Every step must be valid.
    """
    own = {"stripe_unit": cephfs.DEFAULT_OBJECT, "stripe_count": 1, "object_size": cephfs.DEFAULT_OBJECT}
    layout, pool = dict(present or own), None
    for read in commands:
        if read.arguments[0] != "setfattr":
            continue
        _, _, key, _, value, _ = read.arguments
        match = re.fullmatch(r"ceph\.(?:file|dir)\.layout\.(stripe_unit|object_size|stripe_count|pool)", key)
        if match is None:
            raise RefusedError(f"CephFS has no attribute {key}")
        if match[1] == "pool":
            pool = value
        else:
            layout[match[1]] = int(value)
        cephfs.check(cephfs.FileLayout(**layout, pool=pool))
    return cephfs.FileLayout(**layout, pool=pool)


def of_orangefs(commands):
    """What a client makes of the hints."""
    hints = {}
    for read in commands:
        if read.arguments[0] == "setfattr":
            _, _, key, _, value, _ = read.arguments
            hints[key.removeprefix("user.pvfs2.")] = value
    servers = ()
    if hints.get("layout") == orangefs.LAYOUT_LIST:
        count, *addresses = hints["server_list"].split(" ")
        if len(hints["server_list"]) < 6 or len(addresses) != int(count) or int(count) != int(hints["num_dfiles"]):
            raise RefusedError("the server list does not have as many addresses as it says")
        servers = tuple(addresses)
    native = orangefs.Distribution(hints["dist_name"], hints["dist_params"], int(hints["num_dfiles"]), servers)
    orangefs.check(native)
    return native


READERS = {"lustre": lustre, "beegfs": of_beegfs, "cephfs": of_cephfs, "orangefs": of_orangefs}
"""By the name of the exporter."""
