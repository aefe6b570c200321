"""Every command that takes a file, with what is no such file: one message that names it, and no library's own words."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from stripewise import _native
from stripewise._native import StripewiseError

BARE = (
    "Traceback",
    "panicked",
    "[Errno",
    "did not contain valid UTF-8",
    "invalid type",
    "expected i64",
    "expected struct",
    "expected a sequence",
    "as i128",
)
"""What libraries say to programmers."""

DRIVER = """
import contextlib, json, os, sys, tempfile, traceback
from stripewise.cli.app import main

def once(words):
    files = [tempfile.TemporaryFile() for _ in range(2)]
    kept = [os.dup(1), os.dup(2)]
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number + 1)
    sys.argv = ["stripewise", *words]
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, number + 1)
    said = []
    for file in files:
        file.seek(0)
        said.append(file.read().decode(errors="replace"))
    return [code, *said]

print(json.dumps([once(words) for words in json.load(sys.stdin)]))
"""
"""Runs many command lines in one process: to load the package takes longer than most of them."""

COMMANDS = [
    "pool show X",
    "pool calibrate X",
    "mount X",
    "run --pool X -- true",
    "trace --pool X -o new -- true",
    "plan X --pool POOL -o new",
    "plan TRACE --pool X -o new",
    "simulate X --pool POOL",
    "simulate TRACE --pool X",
    "simulate TRACE --cluster X",
    "simulate TRACE --pool POOL --layout X",
    "apply X --pool POOL",
    "apply LAYOUT --pool X",
    "export X --to lustre",
    "export LAYOUT --to lustre --pool X",
    "export LAYOUT --to lustre --cluster X",
    "export LAYOUT --to lustre --pool POOL --trace X",
    "show X",
    "signature X",
    "report X -o new.html",
    "report TRACE -o new.html --pool POOL --layout X",
    "report TRACE -o new.html --cluster X",
    "report TRACE -o new.html --pool X",
    "advise X",
    "advise TRACE --cluster X",
    "import X -o new",
    "stat name --pool X",
    "fsck X",
    "fsck POOL --layouts-from X",
    "export-tree X new",
    "optimize --pool X -- true",
    "top --pool X --once",
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A pool with a trace and a layout that are right, and one of each kind of what is wrong."""
    here = tmp_path_factory.mktemp("inputs")
    stripewise = [sys.executable, "-m", "stripewise"]
    script = "seq 100000 > p/mount/a; cat p/mount/a"
    for words in (
        ["pool", "init", "p", "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01"],
        ["trace", "--pool", "p", "-o", "good.trace", "--", "sh", "-c", script],
        ["plan", "good.trace", "--pool", "p", "-o", "good.layout"],
    ):
        subprocess.run([*stripewise, *words], cwd=here, check=True, capture_output=True, timeout=120)
    wrong = here / "wrong"
    wrong.mkdir()
    (wrong / "directory").mkdir()
    (wrong / "empty").touch()
    (wrong / "binary").write_bytes(bytes(range(256)) * 64)
    (wrong / "latin").write_bytes(b'name = "\xe9"\n')
    (wrong / "text").write_text("hello\nworld\n")
    (wrong / "zeros").write_bytes(bytes(4096))
    (wrong / "half").write_text("[1,2")
    (wrong / "dangling").symlink_to("nothing")
    (wrong / "loop").symlink_to("loop")
    os.mkfifo(wrong / "fifo")
    good = (here / "good.trace").read_bytes()
    (wrong / "cut").write_bytes(good[:300])
    (wrong / "damaged").write_bytes(good[:40] + bytes(byte ^ 0x55 for byte in good[40:400]) + good[400:])
    if os.geteuid() != 0:
        (wrong / "unreadable").write_text("")
        (wrong / "unreadable").chmod(0)
    return here


def kinds(inputs):
    return [*sorted(file.name for file in (inputs / "wrong").iterdir()), "missing", "missing/below", "text/below"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_wrong_is_named(command, inputs):
    names = {"POOL": "p/pool.toml", "TRACE": "good.trace", "LAYOUT": "good.layout"}
    lines = [
        [f"wrong/{kind}" if word == "X" else names.get(word, word) for word in command.split()]
        for kind in kinds(inputs)
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STRIPEWISE")}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(lines),
        cwd=inputs,
        env={**environment, "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert list(inputs.glob("new*")) == []
    for kind, (code, printed, said) in zip(kinds(inputs), json.loads(done.stdout), strict=True):
        case = f"{command}, {kind}: exit {code}\n{printed}\n{said}"
        assert code in ((8,) if command.startswith("fsck") else (1,)), case
        assert f"wrong/{kind}" in said, case
        assert not any(words in said for words in BARE), case
        assert said.splitlines()[-1].startswith(("error: ", "stripewise-mount: ")), case
    for left in inputs.glob("*.recording"):
        shutil.rmtree(left)


VALUES = [
    "5",
    "-1",
    "1.5",
    "nan",
    "inf",
    "true",
    '"text"',
    '""',
    '"-5GB"',
    '"NaN"',
    '"1e400s"',
    '"99999999999TiB"',
    '"\\u0000"',
    "[]",
    "[1]",
    '["a"]',
    "{}",
    "{ a = 1 }",
    "1979-05-27",
    "9223372036854775807",
    "99999999999999999999",
]

POOL = """
name = "p"
mount = "/tmp/mount"
namespace = "/tmp/names"
[default]
width = "64KiB"
[[tier]]
name = "hdd"
servers = ["/tmp/server"]
capacity = "1TB"
network = "1GB/s"
emulate = "nvme"
[tier.read]
startup = ["1ms", "2ms"]
bandwidth = "100MB/s"
[tier.write]
startup = ["1ms", "2ms"]
bandwidth = "100MB/s"
"""

CLUSTER = """
name = "c"
file_system = "lustre"
[default]
tier = "hdd"
count = 1
width = "1MiB"
[[tier]]
name = "hdd"
servers = 4
preset = "hdd-7200"
capacity = "1TB"
pool = "a"
"""

LAYOUT = """
version = 1
pool = "p"
[[file]]
path = "a"
[[file.region]]
offset = 0
round = ["hdd.0:64KiB"]
"""

FORMS = {
    "pool": (POOL, _native.pool_load),
    "cluster": (CLUSTER, _native.cluster_load),
    "layout": (LAYOUT, _native.layout_read),
}


@pytest.mark.parametrize(
    ("form", "line"),
    [(form, line) for form, (text, _) in FORMS.items() for line, key in enumerate(text.splitlines()) if "=" in key],
)
def test_a_value_that_is_wrong_is_named_with_its_line(form, line, tmp_path):
    text, load = FORMS[form]
    file = tmp_path / "x.toml"
    lines = text.splitlines()
    key = lines[line].split(" = ")[0]
    refused = 0
    for value in VALUES:
        lines[line] = f"{key} = {value}"
        file.write_text("\n".join(lines) + "\n")
        try:
            load(str(file))
        except StripewiseError as error:
            said = str(error)
            refused += 1
            # A tier of another name is missed where the default names it.
            assert said.startswith(f"{file}:{line + 1}: ") or "default.tier = " in said, (lines[line], said)
            assert not any(words in said for words in BARE), (lines[line], said)
    assert refused >= len(VALUES) / 2
    # A key that is missing, and one that is none.
    for wrong, at in ((None, None), (f"{key}s = 1", line + 1)):
        file.write_text("\n".join([*lines[:line], *([wrong] if wrong else []), *lines[line + 1 :]]) + "\n")
        try:
            load(str(file))
        except StripewiseError as error:
            said = str(error)
            assert said.startswith(f"{file}:{at}: " if at else f"{file}:"), (wrong, said)
            assert key in said, (wrong, said)
            assert not any(words in said for words in BARE), (wrong, said)
        else:
            assert wrong is None, f"{wrong} was taken"
