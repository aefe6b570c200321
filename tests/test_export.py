"""`stripewise export`: every output obeys the file system's limits and reads back, or is refused with a reason."""

import itertools
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import PATIENCE_S
from native_readers import READERS, lustre, of_cephfs, split
from stripewise import _native, exporters, layouts
from stripewise.exporters import RefusedError, cephfs, lustre_layout, orangefs, shell
from stripewise.exporters.exporter import Place
from stripewise.exporters.lustre import Lustre

SNAPSHOTS = Path(__file__).parent / "snapshots"
KIB64 = 64 << 10
HDDS, SSDS = 6, 2
TARGETS = {
    "lustre": {"hdd": [str(n) for n in range(HDDS)], "ssd": ["10", "11"]},
    "beegfs": {"hdd": [str(101 + n) for n in range(HDDS)], "ssd": ["201", "202"]},
    "cephfs": {},
    "orangefs": {
        "hdd": [f"tcp://io{n}:3334" for n in range(HDDS)],
        "ssd": ["tcp://fast0:3334", "tcp://fast1:3334"],
    },
}
SERVERS = [*(f"hdd.{n}" for n in range(HDDS)), *(f"ssd.{n}" for n in range(SSDS))]

# Layouts

widths = st.one_of(
    st.integers(1, 64).map(lambda n: n * KIB64),
    st.integers(1, 1 << 21),
    st.sampled_from([1, 4096, 1 << 20, (1 << 32) - KIB64, 1 << 32, 5 << 32, 1 << 40]),
)
offsets = st.one_of(st.integers(1, 1 << 12).map(lambda n: n * KIB64), st.integers(1, 1 << 50))


@st.composite
def rounds(draw):
    """A tier or both, equal or own widths; now and then the metadata tier among them."""
    servers = draw(st.lists(st.sampled_from(SERVERS), min_size=1, unique=True))
    if draw(st.booleans()):
        width = draw(widths)
        stripes = [(server, width) for server in servers]
    else:
        of = {tier: draw(widths) for tier in ("hdd", "ssd")}
        stripes = [(server, of[server[:3]]) for server in servers]
    return stripes


@st.composite
def documents(draw, files=st.just("data/shared.dat")):
    described = []
    for path in draw(st.lists(files, min_size=1, max_size=3, unique=True)):
        starts = [0, *sorted(draw(st.sets(offsets, max_size=draw(st.sampled_from([0, 1, 3, 24])))))]
        found = [draw(rounds()) for _ in starts]
        if draw(st.integers(0, 3)) == 0:
            found[0] = [("meta", draw(widths))]
        regions = [
            {
                "offset": start,
                "round": [],
                "stripes": [{"server": server, "width_bytes": width} for server, width in stripes],
            }
            for start, stripes in zip(starts, found, strict=True)
        ]
        described.append({"path": path, "note": None, "regions": regions})
    return {"pool": "p", "files": described}


def exported(document, to, **options):
    to_name = to if isinstance(to, str) else to.name
    targets = options.pop("targets", TARGETS[to_name])
    return exporters.export(document, to=to, targets=_used(document, targets), servers=_counts(document), **options)


def _used(document, mapping):
    named = {stripe["server"][:3] for f in document["files"] for r in f["regions"] for stripe in r["stripes"]}
    return {tier: names for tier, names in mapping.items() if tier in named}


def _counts(document):
    return _used(document, {"hdd": HDDS, "ssd": SSDS})


def files_of(script):
    """The commands of each file of a script, by the empty line and the comment that begin them."""
    parts = re.split(r"\n\n# ", script)[1:-1]
    return [[c for c in split("# " + part) if c.arguments[0] != "set"] for part in parts]


@pytest.mark.parametrize("to", exporters.EXPORTERS)
@given(data=st.data())
@settings(max_examples=60)
def test_every_output_obeys_the_limits_and_reads_back(to, data):
    document = data.draw(documents(st.sampled_from(["a", "d/b c", "x'y/z", "-dash"])))
    has_targets = data.draw(st.booleans())
    existing = data.draw(st.booleans())
    pools = _used(
        document, data.draw(st.sampled_from([{}, {"hdd": ""}, {"ssd": ""}, {"ssd": "flash_1", "hdd": "d-2"}]))
    )
    options = {"existing": existing, "pool_map": pools}
    done = exported(document, to, **options, **({} if has_targets else {"targets": {}}))
    refused = [file for file in done.files if file.refused is not None]
    assert all(file.refused and not file.commands for file in refused)
    parts = files_of(done.script())
    assert len(parts) == len(done.files)
    for file, described in zip(done.files, document["files"], strict=True):
        has_data = any(stripe["server"] != "meta" for region in described["regions"] for stripe in region["stripes"])
        # Rounding finds a way for every layout with a data tier; OrangeFS must be told the servers.
        if to != "orangefs" or has_targets:
            assert (file.refused is None) == has_data, file.refused
    for file, commands in zip(done.files, parts, strict=True):
        assert commands == list(file.commands)
        if file.refused is None:
            # The reader raises for whatever the file system would not take.
            assert READERS[to](commands) == file.native
            assert file.verify


@given(documents())
@settings(max_examples=60)
def test_lustre_templates_read_back_as_the_options_do(document):
    templates = exported(document, Lustre(as_yaml=True), targets={})
    options = exported(document, "lustre", targets={})
    for template, plain in zip(templates.files, options.files, strict=True):
        assert template.native == plain.native
        if plain.refused is None:
            (command,) = template.commands
            assert command.arguments[:3] == ("lfs", "setstripe", "--yaml=/dev/stdin")
            assert lustre([command]) == lustre(plain.commands)


@given(documents(), st.lists(st.integers(0, 1 << 51), min_size=20, max_size=20))
@settings(max_examples=100)
def test_without_losses_each_byte_is_where_the_layout_has_it(document, places):
    """Lustre's own arithmetic: stripe `offset / stripe size mod count` of the component."""
    for file in document["files"]:
        for region in file["regions"]:
            region["offset"] -= region["offset"] % (KIB64 * 64)
            for stripe in region["stripes"]:
                stripe["width_bytes"] = KIB64 * min(1 + stripe["width_bytes"] % 7, 1 << 4)
        starts = [region["offset"] for region in file["regions"]]
        file["regions"] = [r for at, r in enumerate(file["regions"]) if starts.index(r["offset"]) == at]
    done = exported(document, "lustre")
    by_ost = {10: "ssd.0", 11: "ssd.1", **{n: f"hdd.{n}" for n in range(HDDS)}}
    for file, described in zip(done.files, document["files"], strict=True):
        if file.refused is not None or any("objects for" not in loss for loss in file.losses):
            continue
        for place in [*places, *(region["offset"] for region in described["regions"])]:
            component = next(c for c in file.native if c.end is None or place < c.end)
            number = place // component.unit % max(component.count, 1)
            got = "meta" if component.is_mdt else by_ost[component.osts[number]]
            region = [region for region in described["regions"] if region["offset"] <= place][-1]
            phase = place % sum(stripe["width_bytes"] for stripe in region["stripes"])
            for stripe in region["stripes"]:
                if phase < stripe["width_bytes"]:
                    break
                phase -= stripe["width_bytes"]
            assert got == stripe["server"]


@given(rounds())
@settings(max_examples=60)
def test_orangefs_has_every_width_of_a_round_as_it_is(stripes):
    (file,) = exported(document_of("f", (0, stripes)), "orangefs").files
    assert [(file.native.servers[at], width) for at, width in orangefs.strips(file.native)] == [
        (TARGETS["orangefs"][server[:3]][int(server[4:])], width) for server, width in stripes
    ]


def twod_server(offset, size, groups, factor, servers):
    """`dist-twod-stripe.c`, by its description: groups in turn, `factor` rounds of strips in each."""
    each = servers // groups
    bounds = [group * each for group in range(groups)] + [servers]
    rest = offset % (servers * size * factor)
    for first, last in itertools.pairwise(bounds):
        length = (last - first) * size * factor
        if rest < length:
            return first + rest // size % (last - first)
        rest -= length
    raise AssertionError


def document_of(path, *regions):
    described = [
        {"offset": offset, "round": [], "stripes": [{"server": s, "width_bytes": w} for s, w in stripes]}
        for offset, stripes in regions
    ]
    return {"pool": "p", "files": [{"path": path, "note": None, "regions": described}]}


def test_groups_in_turn_are_two_dimensional_on_orangefs():
    """A region a process, two servers a group: `twod_stripe`, by that distribution's own arithmetic."""
    length, width = 1 << 20, 64 << 10
    groups = [("hdd.0", "hdd.1"), ("hdd.2", "hdd.3"), ("hdd.4", "hdd.5")]
    regions = [(at * length, [(s, width) for s in groups[at % 3]]) for at in range(7)]
    (file,) = exported(document_of("f", *regions), "orangefs").files
    assert file.native.name == "twod_stripe"
    assert file.native.params == "strip_size:65536,num_groups:3,group_strip_factor:8"
    for place in range(0, 7 * length, 4096):
        stripes = regions[place // length][1]
        wanted = stripes[place // width % 2][0]
        assert file.native.servers[twod_server(place, width, 3, 8, 6)] == f"tcp://io{wanted[4:]}:3334"
    assert file.losses == ("from 7MiB on the groups go on in turn: the last region ends there",)


# Limits


def test_lustre_limits():
    component = lustre_layout.Component
    good = component(0, None, KIB64, 1)
    for wrong, reason in [
        ([], "without components"),
        ([component(0, None, KIB64 + 1, 1)], "multiples of 64KiB"),
        ([component(0, None, 1 << 32, 1)], "below 4GiB"),
        ([component(0, None, KIB64, 2001)], "1 to 2000"),
        ([component(0, None, KIB64, 2000, None, tuple(range(2000)))], "at most 1999"),
        ([component(0, KIB64, KIB64, 1)], "past the last would fail"),
        ([component(0, KIB64, 2 * KIB64, 1), component(KIB64, None, KIB64, 1)], "no multiple"),
        ([component(0, 2 * KIB64, KIB64, 1), component(KIB64, None, KIB64, 1)], "starts at"),
        ([good, component(KIB64, None, KIB64, 1)], "not the last"),
        ([component(0, None, KIB64, 1, "a-pool-name-too-long")], "1 to 15"),
        ([component(0, None, KIB64, 1, "ignore")], "not called"),
        ([component(0, None, KIB64, 1, "$(reboot)")], "1 to 15"),
        ([component(0, 2 << 30, 2 << 30, 0, is_mdt=True), component(2 << 30, None, KIB64, 1)], "at most 1GiB"),
        (
            [component(0, KIB64, KIB64, 0, "p", is_mdt=True), component(KIB64, None, KIB64, 1)],
            "no stripes, OSTs or pool",
        ),
        ([component(0, KIB64, KIB64, 1), component(KIB64, 2 * KIB64, 2 * KIB64, 0, is_mdt=True)], "first component"),
        (
            [component(n * KIB64, (n + 1) * KIB64, KIB64, 1) for n in range(16)] + [component(1 << 20, None, KIB64, 1)],
            "16",
        ),
        ([component(0, KIB64, KIB64, 2000), component(KIB64, None, KIB64, 1000)], "of at most 65536"),
    ]:
        with pytest.raises(RefusedError, match=reason):
            lustre_layout.check(wrong)
    lustre_layout.check([good])
    with pytest.raises(RefusedError, match="multiples of 64KiB"):
        lustre(_lfs("-S", "65"))
    # A number below 4096 is in KiB, and a component inherits what it does not say.
    assert lustre(_lfs("-E", "64", "-c", "2", "-S", "64", "-p", "a", "-E", "eof")) == (
        component(0, KIB64, KIB64, 2, "a"),
        component(KIB64, None, KIB64, 2, "a"),
    )
    with pytest.raises(RefusedError, match=r"stripe_count\(2\) != nr_tgts\(3\)"):
        lustre(_lfs("-E", "64K", "-c", "2", "-S", "64K", "-E", "eof", "-o", "1,2,3"))


def _lfs(*options):
    return [shell.command("lfs", "setstripe", *options, "f")]


@pytest.mark.parametrize(
    ("to", "document", "options", "reason"),
    [
        ("lustre", document_of("f", (0, [("meta", 4096)])), {}, "needs a region on OSTs"),
        ("beegfs", document_of("f", (0, [("meta", 4096)])), {}, "no data on its metadata servers"),
        ("cephfs", document_of("f", (0, [("meta", 4096)])), {}, "metadata servers"),
        ("orangefs", document_of("f", (0, [("meta", 4096)])), {}, "metadata server"),
        ("lustre", document_of("f", (0, [("hdd.0", 65536)])), {"pool_map": {"hdd": "$(id)"}}, "--pool-map"),
        ("beegfs", document_of("f", (0, [("hdd.0", 65536)])), {"pool_map": {"hdd": "a b"}}, "alias"),
        ("cephfs", document_of("f", (0, [("hdd.0", 65536)])), {"pool_map": {"hdd": "7"}}, "not all digits"),
        ("orangefs", document_of("f", (0, [("hdd.0", 65536)])), {"targets": {"hdd": ["a b"]}}, "no server's address"),
        ("lustre", document_of("f", (0, [("hdd.9", 65536)])), {}, "names 6 servers"),
        ("lustre", document_of("f", (0, [("hdd.0", 65536)])), {"targets": {"hdd": ["-1"]}}, "no index of an OST"),
        ("orangefs", document_of("f", (0, [("hdd.0", 4096), ("ssd.0", 8192)])), {"targets": {}}, "--targets"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_a_reason(to, document, options, reason):
    targets = options.get("targets", {} if "pool_map" in options else TARGETS[to])
    done = exported(document, to, **{**options, "targets": targets})
    assert len(done.refused) == 1
    assert reason in done.refused[0]
    assert not done.commands


def test_strips_of_very_many_servers_do_not_fit_into_orangefs():
    def many(count):
        stripes = [(f"hdd.{n}", 49152 + 4096 * (n % 2)) for n in range(count)]
        targets = {"hdd": [f"tcp://{n}:1" for n in range(count)]}
        return exporters.export(document_of("f", (0, stripes)), to="orangefs", targets=targets)

    fits = max(count for count in range(90, 200) if not many(count).refused)
    assert 100 < fits < 160
    (file,) = many(fits).files
    assert orangefs.MOST_PARAMS - 8 < len(file.native.params) <= orangefs.MOST_PARAMS
    assert "about 100 servers" in many(fits + 1).refused[0]


@given(st.integers(1, 2048), st.integers(1, 2048), st.integers(1, 40), st.integers(1, 64), st.integers(1, 3))
def test_each_step_to_a_layout_of_cephfs_is_valid_from_any_layout(unit, count, before_unit, times, stripes):
    wanted = cephfs.FileLayout(unit * KIB64, count, max((64 // unit), 1) * unit * KIB64, "ssd")
    present = {"stripe_unit": before_unit * KIB64, "stripe_count": stripes, "object_size": before_unit * times * KIB64}
    exporter = cephfs.CephFS()
    for is_directory in (False, True):
        commands = exporter.commands(wanted, Place("f", is_directory, False))
        # The reader checks what stands after every command, as the metadata server does.
        if present["object_size"] <= cephfs.MOST_OBJECT:
            assert of_cephfs(commands, present) == wanted


def test_many_regions_are_folded_into_sixteen_components():
    regions = [(n * (1 << 20), [(f"hdd.{n % 6}", KIB64 * (1 + n % 3))]) for n in range(100)]
    (file,) = exported(document_of("f", *regions), "lustre").files
    assert len(file.native) == lustre_layout.MOST_COMPONENTS
    assert any("100 regions in 16 components" in loss for loss in file.losses)


def test_directories_get_defaults_and_only_one():
    document = document_of("out/*.h5", (0, [("hdd.0", 65536)]))
    document["files"] += document_of("out/**/x", (0, [("ssd.0", 65536)]))["files"]
    document["files"] += document_of("**", (0, [("ssd.1", 65536)]))["files"]
    done = exported(document, "lustre", targets={}, root="/lustre/project")
    assert [file.path for file in done.files] == ["/lustre/project/out", "/lustre/project/out", "/lustre/project"]
    assert done.refused == ["out/**/x: directory 'out' already has the layout of out/*.h5 as its default"]
    assert done.files[0].commands[0].text == "lfs setstripe -c 1 -S 64K -p hdd /lustre/project/out"
    assert any("not only those that out/*.h5 matches" in loss for loss in done.files[0].losses)
    assert done.files[0].verify[0].text == "lfs getstripe -d --yaml /lustre/project/out"


def test_many_files_that_agree_are_one_default_of_their_directory():
    def document(*changed, count=20):
        files = []
        for number in range(count):
            # Round robin over the disks: with a pool and no targets they are all the same to Lustre.
            stripes = [("ssd.0", 65536)] if number in changed else [(f"hdd.{number % 4}", 65536)]
            files += document_of(f"out/f.{number}", (0, stripes))["files"]
        files += document_of("in/a", (0, [("ssd.0", 65536)]))["files"]
        return {"pool": "p", "files": files}

    done = exported(document(), "lustre", targets={}, root="/lustre")
    assert [command.text for command in done.commands] == [
        "lfs setstripe -c 1 -S 64K -p hdd /lustre/out",
        "lfs setstripe -c 1 -S 64K -p ssd /lustre/in/a",
    ]
    assert [(file.pattern, file.is_directory) for file in done.files] == [("out/*", True), ("in/a", False)]
    assert any("all new files, not only those 20, get it" in loss for loss in done.files[0].losses)
    assert done.verify[0].text == "lfs getstripe -d --yaml /lustre/out"
    for other in (
        exported(document(7), "lustre", targets={}),
        exported(document(count=8), "lustre", targets={}),
        exported(document(), "lustre", targets={}, existing=True),
        exported(document(), Lustre(as_yaml=True), targets={}),
    ):
        assert not any(file.is_directory for file in other.files)
        assert len(other.files) in (9, 21) and len(other.commands) >= len(other.files)
    of_directory = document()
    of_directory["files"] += document_of("out/*.h5", (0, [("ssd.0", 65536)]))["files"]
    assert len(exported(of_directory, "lustre", targets={}).files) == 22


# Shells

hostile = st.text(
    st.one_of(
        st.sampled_from("'\"\\$`;&|<>(){}[]*?!#~ \n\t\r-=%é\u2028"),
        st.characters(codec="utf-8", exclude_characters="\0"),
    ),
    min_size=1,
    max_size=30,
)


@given(st.lists(hostile, min_size=1, max_size=5), st.none() | hostile.map(lambda text: text.replace("\r", "") + "\n"))
@settings(max_examples=60)
@example(["0"], "S\x80\n")
def test_a_shell_takes_every_argument_as_it_is(tmp_path_factory, arguments, stdin):
    """Real `sh`: the arguments and the input that arrive are those that were meant."""
    command = shell.Command(("printf", "%s\\0", *arguments), stdin)
    ran = subprocess.run(["sh", "-c", command.text], capture_output=True, check=True, timeout=PATIENCE_S)
    assert ran.stdout == b"".join(argument.encode() + b"\0" for argument in arguments)
    assert ran.stderr == b""
    if stdin is not None:
        echo = shell.Command(("cat",), stdin)
        assert subprocess.run(["sh", "-c", echo.text], capture_output=True, check=True).stdout == stdin.encode()
        assert "\n" not in shell.comment(stdin)


RECORDER = """#!{python}
import os, sys
with open(os.environ["RECORD"], "ab") as out:
    out.write(b"\\0".join(map(os.fsencode, [os.path.basename(sys.argv[0]), *sys.argv[1:]])) + b"\\0\\0\\n")
"""


@pytest.mark.parametrize("to", exporters.EXPORTERS)
@pytest.mark.parametrize("existing", [False, True])
def test_a_hostile_layout_starts_nothing_of_its_own(tmp_path, to, existing):
    """The script runs in real `sh`; every program that it starts writes its arguments down."""
    import sys

    names = ["a b", "it's", "$(touch pwned)", "`touch pwned`", "x\ntouch pwned\n", "-rf", ";touch pwned", "é\\n", "-"]
    document = {"pool": "p'\ntouch pwned\n", "files": []}
    for name in names:
        path = re.sub(r"([*?\\])", r"\\\1", name)
        document["files"] += document_of(path, (0, [(f"hdd.{n}", 65536) for n in range(6)]))["files"]
    done = exported(document, to, existing=existing)
    assert not done.refused
    bin = tmp_path / "bin"
    bin.mkdir()
    for program in sorted({command.arguments[0] for command in [*done.commands, *done.verify]}):
        (bin / program).write_text(RECORDER.format(python=sys.executable))
        (bin / program).chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    record = tmp_path / "record"
    environment = {"PATH": str(bin), "RECORD": str(record), "LANG": "C.UTF-8"}
    # `test` is the shell's own: it finds no file.
    subprocess.run(["/bin/sh", "-c", done.script()], cwd=work, env=environment, check=True, capture_output=True)
    assert list(work.iterdir()) == []
    ran = [tuple(part.decode() for part in line.split(b"\0")) for line in record.read_bytes().split(b"\0\0\n")[:-1]]
    meant = [command.arguments for command in [*done.commands, *done.verify] if command.arguments[0] != "test"]
    assert ran == meant
    # No path is an option or a name for standard input.
    for command in meant:
        assert not any(argument in ("-", "-rf") for argument in command[1:])


@pytest.mark.parametrize("to", ["beegfs", "cephfs", "orangefs"])
def test_a_symbolic_link_is_not_replaced_by_a_copy(tmp_path, to):
    (tmp_path / "link").symlink_to("elsewhere")
    document = document_of("link", (0, [(f"hdd.{n}", 65536) for n in range(6)]))
    done = exported(document, to, existing=True)
    ran = subprocess.run(["sh", "-c", done.script()], cwd=tmp_path, capture_output=True, timeout=PATIENCE_S)
    assert ran.returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


# The command line

LAYOUT = """
version = 1
pool = "{pool}"

[[file]]
path = "data/shared.dat"

[[file.region]]
offset = "0"
round = ["meta:64KiB"]

[[file.region]]
offset = "64KiB"
round = ["ssd.0-1:192KiB"]

[[file.region]]
offset = "12MiB"
round = ["hdd.0-5:64KiB", "ssd.0-1:192KiB"]

[[file]]
path = "out dir/*.h5"

[[file.region]]
offset = "0"
round = ["hdd.0-5:48KiB", "ssd.0-1:112KiB"]
"""


@pytest.fixture
def made(tmp_path, stripewise):
    stripewise("pool", "init", tmp_path / "p", "--emulate", "--hdd", HDDS, "--ssd", SSDS)
    layout = tmp_path / "new.layout"
    layout.write_text(LAYOUT.format(pool="p"))
    return layout, tmp_path / "p" / "pool.toml"


def options_for(to):
    return [option for tier, names in TARGETS[to].items() for option in ("--targets", f"{tier}={','.join(names)}")]


@pytest.mark.parametrize("to", exporters.EXPORTERS)
@pytest.mark.parametrize("existing", [False, True])
def test_the_scripts_are_what_they_were(stripewise, made, to, existing):
    """STRIPEWISE_UPDATE_SNAPSHOTS=1 writes them anew; the change is then read in the diff."""
    layout, pool = made
    printed = stripewise(
        "export", layout, "--to", to, "--pool", pool, *options_for(to), *(["--existing"] if existing else [])
    ).stdout
    snapshot = SNAPSHOTS / f"export-{to}{'-existing' if existing else ''}.sh"
    if os.environ.get("STRIPEWISE_UPDATE_SNAPSHOTS"):
        snapshot.write_text(printed)
    assert printed == snapshot.read_text()
    subprocess.run(["sh", "-n"], input=printed, text=True, check=True)
    script = layout.parent / "set.sh"
    table = stripewise(
        "export",
        layout,
        "--to",
        to,
        "--pool",
        pool,
        *options_for(to),
        "-o",
        script,
        *(["--existing"] if existing else []),
    )
    assert script.read_text() == printed
    assert os.access(script, os.X_OK)
    assert "data/shared.dat" in table.stdout


def test_json_holds_the_commands_as_arguments(stripewise, made):
    layout, pool = made
    document = json.loads(stripewise("export", layout, "--to", "lustre", "--pool", pool, "--json").stdout)
    first = document["files"][0]
    (command,) = first["commands"]
    assert command["arguments"][:2] == ["lfs", "setstripe"]
    assert first["loss_ratio"] > 0
    assert document["loss_ratio"] == max(file["loss_ratio"] for file in document["files"])
    assert "no trace" in document["workload"]
    assert json.loads(stripewise("export", layout, "--to", "lustre", "--json").stdout)["loss_ratio"] is None


def test_python_gives_the_same(made):
    layout, pool = made
    cluster = _native.cluster_load(str(pool))
    done = exporters.export(layouts.read(layout), to="cephfs", cluster=cluster, pool_map={"hdd": "slow"})
    assert any("slow" in command.arguments for command in done.commands)
    assert done.loss_ratio is not None
    assert done.losses
    assert done.verify


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "gpfs"], "--to gpfs: there is lustre, beegfs, cephfs, orangefs"),
        (["--to", "cephfs", "--pool-map", "tape=x"], "there is no tier tape"),
        (["--to", "cephfs", "--pool-map", "hdd"], "--pool-map hdd: it takes a tier and a name"),
        (["--to", "cephfs", "--targets", "=x"], "--targets =x"),
        (["--to", "lustre", "--targets", "hdd=5-0"], "from the lower number"),
        (["--to", "lustre", "--targets", "hdd=0-999999999"], "at most 65535"),
        (["--to", "cephfs", "--yaml"], "--yaml is for --to lustre"),
        (["--to", "cephfs", "--trace", "x"], "give --pool or --cluster with them"),
        (["--to", "lustre", "--yaml"], "a YAML template is for a new file"),
        ([], "name the file system: --to lustre, beegfs, cephfs, orangefs"),
        (["--to", "cephfs", "--pool", "a", "--cluster", "b"], "give one"),
        (["--to", "orangefs"], "--targets hdd=tcp://io0:3334"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(stripewise, made, arguments, message):
    layout, _ = made
    out = layout.parent / "set.sh"
    done = stripewise("export", layout, *arguments, "-o", out, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""
    assert not out.exists()


def test_a_layout_of_another_pool_is_refused(stripewise, made):
    layout, pool = made
    layout.write_text(LAYOUT.format(pool="other"))
    done = stripewise("export", layout, "--to", "lustre", "--pool", pool, check=False)
    assert "is for 'other', not for 'p'" in done.stderr
