"""What the owner of a pool leaves in its namespace for a root that works on it: links, FIFOs, files without end.

Nothing of that is followed, waited for, believed or changed. Other processes do what may hang.
"""

import json
import os
import subprocess
import sys

import pytest

from conftest import PATIENCE_S
from stripewise import StripewiseError
from stripewise.api import adapt as adapting
from stripewise.api import adapt_service, asking, kept_lines, leaving, moved, moving, owned, small_files
from stripewise.api.adapt_service import Wanted
from stripewise.cli import adapt as commands
from stripewise.pool import Pool

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root works on the pools of other users")

OWNER = 65534
SECRET = '{"time_s": 1.0, "what": "copied", "verdict": "secret", "copied_bytes": 7, "path": "f", "planned_bytes": 2}\n'
STATES = [adapting.STATE, adapting.LOCK, moved.FILE, moving.STATE, leaving.STATE, small_files.STATE]


@pytest.fixture
def file(tmp_path, stripewise):
    """The file of an emulated pool with heat, which belongs to another user; nothing in it was adapted so far."""
    base = tmp_path / "u1"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    (base / "pool.toml").write_text((base / "pool.toml").read_text() + "\n[heat]\n")
    subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", base], check=True)
    return base / "pool.toml"


@pytest.fixture
def secret(tmp_path):
    """A file of root's, of lines that could be a pool's."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    return tmp_path / "secret"


def put(what, place, secret):
    """Puts something into the place of a file, as the owner of the pool may."""
    if what == "FIFO":
        os.mkfifo(place)
    elif what == "without end":
        place.symlink_to("/dev/zero")
    elif what == "link":
        place.symlink_to(secret)
    elif what == "other name":
        os.link(secret, place)  # The owner may do so where `fs.protected_hardlinks` is off.
    elif what == "large":
        place.touch()
        os.truncate(place, 1 << 40)
    if what != "other name":
        os.chown(place, OWNER, OWNER, follow_symlinks=False)


@pytest.mark.parametrize("name", ["README", "0123456789abcdef"])
def test_no_file_of_a_directory_of_roots_is_removed_or_made(file, tmp_path, name):
    """The directory of questions is a link to one of root's, in which any name may stand."""
    pool, of_root = Pool.load(file), tmp_path / "of-root"
    of_root.mkdir()
    (of_root / name).write_text("root's")
    place = pool.namespace / asking.DIRECTORY
    place.symlink_to(of_root)
    os.chown(place, OWNER, OWNER, follow_symlinks=False)
    with adapting.alone(pool):
        assert next(adapt_service.run(file, Wanted(promote_s=0.0, period_s=0.0)))["verdict"] == "kept"
    assert [(of.name, of.read_text()) for of in of_root.iterdir()] == [(name, "root's")]
    assert (asking.is_waiting(pool), asking.take(pool)) == (False, [])
    refused = rf"cannot be asked to decide now: {place}/\w+ cannot be made: it is no directory; remove it"
    with pytest.raises(StripewiseError, match=refused), asking._asked(pool):
        pass
    assert [(of.name, of.read_text()) for of in of_root.iterdir()] == [(name, "root's")]
    assert of_root.stat().st_uid == 0


def test_a_directory_that_becomes_a_link_while_a_question_waits_loses_no_file(file, tmp_path):
    pool, of_root = Pool.load(file), tmp_path / "of-root"
    of_root.mkdir()
    place = pool.namespace / asking.DIRECTORY
    with asking._asked(pool) as (directory, question):
        assert (place / question).stat().st_uid == OWNER and asking.is_waiting(pool)
        (of_root / question).write_text("root's")
        place.rename(pool.namespace / "aside")
        place.symlink_to(of_root)
        assert owned.has(directory, question) and asking.take(pool) == []
    assert (of_root / question).read_text() == "root's"
    assert list((pool.namespace / "aside").iterdir()) == []


def test_what_no_command_has_made_is_no_question_and_stays(file, secret):
    pool = Pool.load(file)
    place = pool.namespace / asking.DIRECTORY
    owned.make_directory(place)
    (place / "README").write_text("the owner's")
    for number, what in enumerate(("FIFO", "link")):
        put(what, place / f"{number:016x}", secret)
    before = sorted(of.name for of in place.iterdir())
    assert (asking.is_waiting(pool), asking.take(pool)) == (False, [])
    assert sorted(of.name for of in place.iterdir()) == before


def test_one_decision_answers_a_bounded_number_of_questions(file, monkeypatch):
    pool = Pool.load(file)
    monkeypatch.setattr(asking, "MOST_TAKEN", 2)
    owned.make_directory(pool.namespace / asking.DIRECTORY)
    names = [f"{number:016x}" for number in range(5)]
    with owned.directory(pool.namespace / asking.DIRECTORY) as directory:
        for name in names:
            owned.make(directory, name)
    taken = [asking.take(pool) for _ in range(3)]
    assert [len(of) for of in taken] == [2, 2, 1] and sorted(name for of in taken for name in of) == names
    assert not asking.is_waiting(pool)


CALLS = """
import json, resource, sys
from pathlib import Path
# What is read without a bound ends there, and not the machine.
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from stripewise import StripewiseError
from stripewise.api import adapt, asking, leaving, moved, moving, small_files
from stripewise.pool import Pool

pool = Pool.load(Path(sys.argv[1]))

def alone():
    with adapt.alone(pool):
        pass

calls = {
    "decisions": lambda: adapt.decisions(pool),
    "copied today": lambda: adapt.copied_today(pool),
    "records": lambda: moved.records(pool),
    "halves": lambda: moved.halves(pool),
    "copied": lambda: moved.copied_bytes(pool, 0.0),
    "left": lambda: leaving.known(pool),
    "small files": lambda: small_files._kept(pool),
    "move": lambda: moving.now(pool),
    "is adapted": lambda: adapt.is_adapted(pool),
    "tell": lambda: moving.Teller(pool, lambda *_: True)("f", 0, 1),
    "alone": alone,
    "record": lambda: moved.record(pool, {"what": "copied", "path": "f", "copied_bytes": 1}),
    "hold back": lambda: adapt.held_back(pool, "x")["why"],
    "fail": lambda: adapt.failed(pool, StripewiseError("x"))["why"],
    "keep what left": lambda: leaving._keep(pool, {}),
    "keep small files": lambda: small_files._keep(pool, {}),
}
found = {}
for name in sys.argv[2:] or calls:
    try:
        found[name] = calls[name]()
    except StripewiseError as error:
        found[name] = f"refused: {error}"
print(json.dumps(found))
"""


def called(file, *names):
    """What each call says, as JSON has it."""
    command = [sys.executable, "-c", CALLS, file, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("FIFO", "it is no regular file; remove it"),
        ("without end", "it is a symbolic link, which is not followed; remove it"),
        ("link", "it is a symbolic link, which is not followed; remove it"),
        ("other name", "it is another name of a file of user 0, who does not own the namespace; remove it"),
    ],
)
def test_what_is_no_file_of_the_pool_is_neither_read_nor_written(file, secret, what, why):
    namespace = Pool.load(file).namespace
    for state in STATES:
        put(what, namespace / state, secret)
    for state in (leaving.STATE, small_files.STATE):
        put(what, namespace / f"{state}.new", secret)

    def refused(state, how):
        return f"refused: {namespace / state} cannot be {how}: {why}"

    kept = f"refused: {namespace / adapting.STATE} cannot be written, so that the decision is not kept: {why}"
    assert called(file) == {
        **dict.fromkeys(("records", "halves", "copied", "copied today"), refused(moved.FILE, "read")),
        "decisions": refused(adapting.STATE, "read"),
        "left": refused(leaving.STATE, "read"),
        "small files": refused(small_files.STATE, "read"),
        "move": None,
        "is adapted": False,
        "tell": True,
        "alone": f"{refused(adapting.LOCK, 'written')}; run this as its owner",
        "record": refused(moved.FILE, "written").replace("written:", "written, so that nothing may move:"),
        "hold back": kept,
        "fail": "x",
        "keep what left": refused(leaving.STATE, "written"),
        "keep small files": refused(small_files.STATE, "written"),
    }
    assert secret.read_text() == SECRET and secret.stat().st_uid == 0


def test_what_is_larger_than_the_pool_writes_it_is_not_read(file, secret):
    """A file without bytes that has a length of 1 TiB."""
    namespace = Pool.load(file).namespace
    for state in STATES:
        put("large", namespace / state, secret)
    names = ("decisions", "records", "copied", "left", "small files", "move", "is adapted", "record", "hold back")
    found = called(file, *names)
    assert (found.pop("move"), found.pop("is adapted")) == (None, False)
    assert all("bytes that it may have; remove it" in of for of in found.values()), found


@pytest.mark.parametrize("what", ["FIFO", "link", "other name"])
@pytest.mark.parametrize("ending", ["old", "new"])
def test_a_file_of_lines_that_becomes_the_old_one_changes_nothing_of_roots(file, secret, monkeypatch, what, ending):
    pool = Pool.load(file)
    moved.record(pool, {"what": "copied", "path": "f", "copied_bytes": 1})
    place = pool.namespace / f"{moved.FILE}.{ending}"
    put(what, place, secret)
    monkeypatch.setattr(kept_lines, "MOST_BYTES", 1)
    with pytest.raises(StripewiseError, match="remove it"):
        moved.record(pool, {"what": "copied", "path": "f", "copied_bytes": 1})
    assert secret.read_text() == SECRET and secret.stat().st_uid == 0
    place.unlink()
    assert moved.copied_bytes(pool, 0.0) == 1, "no line is lost"


@pytest.mark.parametrize(("words", "code"), [(("adapt", "--once"), 1), (("pool", "show"), 0)])
def test_commands_say_what_is_in_the_place_of_a_file(file, stripewise, secret, words, code):
    pool = Pool.load(file)
    put("FIFO", pool.namespace / adapting.STATE, secret)
    refused = stripewise(*words, file, check=False)
    assert refused.returncode == code, "`pool show` goes on without it"
    assert f"{pool.namespace / adapting.STATE} cannot be read: it is no regular file; remove it" in refused.stderr


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"verdict": "failed", "why": "\x1b]0;x\x07"}, r"\x1b]0;x\x07"),
        ({"verdict": "kept"}, f"{adapting.STATE} is no decision: remove that file"),
        ({"verdict": "moved", "ratio": "x", "is_part": 1}, "is no decision"),
        ({}, "is no decision"),
    ],
)
def test_an_answer_that_the_owner_has_written_commands_no_terminal(file, monkeypatch, line, why):
    pool = Pool.load(file)
    monkeypatch.setattr(asking, "answer", lambda *_: {"time_s": 1.0, "asked": ["0" * 16], **line})
    with pytest.raises(StripewiseError) as refused:
        commands._ask(pool, as_json=False)
    assert why in str(refused.value) and "\x1b" not in str(refused.value)


def test_a_fifo_among_datafiles_is_not_waited_for(file, tmp_path, secret):
    """As `optimize` empties the page cache of servers between two runs."""
    shelf = tmp_path / "server" / "00"
    shelf.mkdir(parents=True)
    (shelf / "datafile").touch()
    put("FIFO", shelf / "fifo", secret)
    (tmp_path / "server" / "linked").symlink_to(shelf)
    script = "import sys; from pathlib import Path; from stripewise.optimize import cache; "
    script += "print(cache._drop_server(Path(sys.argv[1])))"
    command = [sys.executable, "-c", script, tmp_path / "server"]
    assert subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S).stdout == b"1\n"


def test_a_line_that_would_be_too_long_names_fewer_files(file, monkeypatch):
    """So that what is written is never too long to be read."""
    pool = Pool.load(file)
    monkeypatch.setattr(kept_lines, "MOST_LINE_BYTES", 2000)
    files = [{"path": "\udcff" * 50, "why": "it is open"}] * 1000
    adapting.kept(pool).append({"verdict": "kept", "skipped": files, "hints": [{"number": of} for of in range(1000)]})
    (found,) = adapting.decisions(pool)
    assert (pool.namespace / adapting.STATE).stat().st_size <= 2002
    assert found["skipped"] == files[: len(found["skipped"])] and found["left_out"] == 1000 - len(found["skipped"])
    assert found["hints"][-1] == {"number": 999}, "the last ones count"
    with pytest.raises(OSError, match="the line would have"):
        adapting.kept(pool).append({"verdict": "kept", "why": "x" * 2000})


def test_another_name_of_the_owners_own_file_is_read_and_written(file, tmp_path):
    """As a backup by hard links makes."""
    pool = Pool.load(file)
    moved.record(pool, {"what": "copied", "path": "f", "copied_bytes": 1})
    os.link(pool.namespace / moved.FILE, tmp_path / "backup")
    moved.record(pool, {"what": "copied", "path": "f", "copied_bytes": 2})
    assert moved.copied_bytes(pool, 0.0) == 3
