"""`stripewise orchestrate`: real programs that take turns on a pool, and go on when the orchestrator dies."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import BIN, PATIENCE_S
from stripewise import StripewiseError, native_paths
from stripewise.api import hinting, orchestrating, placing, service
from stripewise.api.pools import Pool

READER = """
import os, sys
mount, name, over = sys.argv[1:]
data = bytes(range(256)) * 256
with open(f"{mount}/{name}", "wb") as file:
    for _ in range(16):
        file.write(data)
fd = os.open(f"{mount}/{name}", os.O_RDONLY)
while not os.path.exists(over):
    for block in range(16):
        assert os.pread(fd, len(data), block * len(data)) == data
"""
"""Writes a file, then reads it in order again and again until a file `over` is there; each read is compared."""


class Orchestrator:
    """One in the background."""

    def __init__(self, pool, *options):
        command = [str(BIN / "stripewise"), "orchestrate", str(pool.file), *options]
        self.pool = pool
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
        wait_for(lambda: status(pool)["process"] is not None or self.process.poll() is not None)

    def end(self, number):
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said


def status(pool):
    return json.loads(pool.stripewise("orchestrate", pool.file, "--status", "--json").stdout)


def wait_for(condition):
    began = time.monotonic()
    while not (found := condition()):
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.005)  # The next look: what is waited for needs the processor, too.
    return found


def wait_for_words(pool, command, *words):
    """What the command prints, once all of the words are in it.

    An orchestrator or a program that had no processor for some windows is at one look as if it were not there.
    """

    def printed():
        shown = pool.stripewise(*command).stdout
        return shown if all(word in shown for word in words) else None

    return wait_for(printed)


def by_name(found):
    return {program["name"]: program for program in found["programs"]}


@pytest.fixture
def background(pool):
    """Starts programs on the pool; those that are left are told to end, and must have read what they wrote."""
    over = pool.base / "over"
    running = []

    def start(of, name, *options):
        arguments = ["run", "--quiet", "--pool", of.file, "--program", name, *options]
        command = [sys.executable, "-c", READER, of.mount, name, over]
        running.append(subprocess.Popen([str(BIN / "stripewise"), *map(str, arguments), "--", *map(str, command)]))

    yield start
    over.touch()
    assert [program.wait(timeout=PATIENCE_S) for program in running] == [0] * len(running)


def test_two_programs_take_turns_and_go_on_when_the_orchestrator_is_killed(pool, background):
    orchestrator = Orchestrator(pool, "--policy", "even", "--window", "50")
    background(pool, "one")
    background(pool, "two", "--no-preload")

    def both_took_turns():
        programs = by_name(status(pool))
        return programs.keys() == {"one", "two"} and all(
            one["held"] > 10 and one["in_turn"] > 10 and one["slice_s"] == pytest.approx(0.025)
            for one in programs.values()
        )

    wait_for(both_took_turns)
    wait_for_words(pool, ("orchestrate", pool.file, "--status"), "even, window 50.00 ms", "one", "two")
    orchestrated = "orchestrated by even, window 50.00 ms; serving"
    wait_for_words(pool, ("top", "--pool", pool.file, "--once"), orchestrated, "slices: ")
    refused = pool.stripewise("orchestrate", pool.file, check=False)
    assert refused.returncode == 1
    assert f"is orchestrated already (process {wait_for(lambda: status(pool)['process'])})" in refused.stderr
    # In the middle of a window, as most of its time is.
    code, said = orchestrator.end(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "one (user" in said and "slice 25 of 50 ms" in said
    before = by_name(status(pool))

    def both_go_on():
        now = by_name(status(pool))
        return all(now[name]["unanswered"] > before[name]["unanswered"] + 10 for name in ("one", "two"))

    wait_for(both_go_on)
    # Another one takes over.
    orchestrator = Orchestrator(pool, "--policy", "even", "--window", "50")
    held = {name: program["held"] for name, program in by_name(status(pool)).items()}
    wait_for(lambda: all(program["held"] > held[name] + 5 for name, program in by_name(status(pool)).items()))
    code, said = orchestrator.end(signal.SIGTERM)
    assert code == 0
    assert said.endswith("ended: all programs are served at all times\n")
    assert status(pool)["process"] is None


def test_readers_in_order_on_a_disk_with_a_head_get_dedicated_service(emulated, background):
    # Slow motion: seeks of 40 ms and more, so that the machine's own load is little beside them.
    text = emulated.file.read_text().replace(
        'emulate = "hdd-7200"', 'emulate = { preset = "hdd-7200-head", dilation = 4.0 }'
    )
    assert "hdd-7200-head" in text
    emulated.file.write_text(text)
    orchestrator = Orchestrator(emulated, "--window", "400")
    background(emulated, "one")
    background(emulated, "two")

    def both_had_turns():
        programs = by_name(status(emulated))
        return programs.keys() == {"one", "two"} and all(program["in_turn"] > 0 for program in programs.values())

    # The standing of either one changes with what it measures; that it had turns stays in its counters.
    wait_for(both_had_turns)
    code, said = orchestrator.end(signal.SIGINT)
    assert code == 0
    assert "shared -> probe" in said and "of the mix" in said


def test_weights_are_those_of_slices_and_limits_bound_what_programs_move(pool, background):
    limit, request = 1 << 20, 1 << 16
    orchestrator = Orchestrator(
        pool, *("--policy", "even", "--window", "100", "--weight", "heavy=3", "--limit", "past=1MiB"),
        *("--limit", "through=1MiB"),
    )  # fmt: skip
    background(pool, "heavy")
    background(pool, "past")
    background(pool, "through", "--no-preload")

    def sliced():
        found = by_name(status(pool))
        slices = {name: round(program["slice_s"], 3) for name, program in found.items()}
        return found if slices == {"heavy": 0.06, "past": 0.02, "through": 0.02} else None

    found = wait_for(sliced)
    assert {name: program["weight"] for name, program in found.items()} == {"heavy": 3, "past": 1, "through": 1}
    limits = {name: program["limit_bytes_per_s"] for name, program in found.items()}
    assert limits == {"heavy": None, "past": limit, "through": limit}
    orchestrator.end(signal.SIGTERM)
    # Whatever the policy is, and without turns.
    orchestrator = Orchestrator(pool, "--policy", "none", "--limit", "past=1MiB", "--limit", "through=1MiB")
    limited = ("past", "through")
    wait_for(lambda: all(by_name(status(pool))[name]["limit_bytes_per_s"] == limit for name in limited))
    began_s, before = time.monotonic(), by_name(status(pool))
    wait_for(lambda: all(by_name(status(pool))[name]["held"] > before[name]["held"] + 20 for name in limited))
    now, ended_s = by_name(status(pool)), time.monotonic()
    for name in limited:
        moved = now[name]["bytes"] - before[name]["bytes"]
        # An orchestrator that has no processor for some windows holds none of them.
        unheld = now[name]["unanswered"] - before[name]["unanswered"]
        # Beside what the limit lets pass: what was under way at each end, and what had begun before.
        most = limit * (ended_s - began_s) + (3 + unheld) * request
        assert 0 < moved <= most, (name, moved, unheld, ended_s - began_s)
    assert now["heavy"]["held"] == before["heavy"]["held"]
    orchestrator.end(signal.SIGTERM)


LAUNCHERS = {
    "slurm:{}.2": "SLURM_JOB_ID={} SLURM_STEP_ID=2",
    "flux:{}": "FLUX_JOB_ID={}",
    "pmix:{}": "PMIX_NAMESPACE={}",
    "ompi:{}": "OMPI_MCA_ess_base_jobid={}",
    "pbs:{}": "PBS_JOBID={}",
    "{}-given": "STRIPEWISE_JOB={}-given SLURM_JOB_ID=1",
}
"""Names of programs, and what launchers leave in the environment of their processes."""


def test_programs_have_the_names_of_their_jobs_whichever_way_they_take(pool):
    orchestrator = Orchestrator(pool, "--policy", "none")
    copy = f"dd if=/dev/zero bs=64K count=4 status=none of={pool.mount}/"
    for way, options in (("past", []), ("through", ["--no-preload"])):
        copies = [f"env {words.format(way)} {copy}{way}-{at}" for at, words in enumerate(LAUNCHERS.values())]
        # Ranks of Hydra are given no name of their run. What no launcher has started is a program of `run`.
        ranks = f"mpiexec -n 3 sh -c '{copy}{way}-rank-$PMI_RANK'"
        script = " && ".join([*copies, f"{copy}{way}", ranks])
        pool.stripewise("run", "--quiet", "--pool", pool.file, *options, "--", "sh", "-c", script)
        found = by_name(status(pool))
        assert {name.format(way) for name in LAUNCHERS} <= found.keys()
    hydra = [one for name, one in found.items() if name.startswith("hydra:")]
    assert [(one["processes"], one["files"] > 1) for one in hydra] == [(3, True)] * 2, hydra
    assert sum(name.startswith("sh.") for name in found) == 2
    # What was written is the program's, by its requests or by none.
    assert all(one["bytes"] >= one["processes"] * 4 * 65536 for name, one in found.items() if ":past" in name)
    assert orchestrator.end(signal.SIGTERM)[0] == 0


WORKER = """
import os, sys
name, mount, progress, over = sys.argv[1:]
fd = os.open(f"{mount}/{name}", os.O_RDWR | os.O_CREAT)
size, blocks, rounds = 65536, 8, 0
with open(progress, "ab", buffering=0) as done:
    while not os.path.exists(over):
        rounds += 1
        for block in range(blocks):
            assert os.pwrite(fd, bytes([(rounds + block) % 256]) * size, block * size) == size
        for block in range(blocks):
            assert os.pread(fd, size, block * size) == bytes([(rounds + block) % 256]) * size
        done.write(b".")
"""
"""Writes a file and reads it again until a file `over` is there, and adds a byte to a file outside of the pool then."""


def garbled(page, draw):
    """A page with words of any size in some places, or all of it random."""
    if draw.random() < 0.2:
        return draw.randbytes(len(page))
    changed = bytearray(page)
    for _ in range(draw.randint(1, 40)):
        # The first words say what the page is and for how long it holds.
        at = 8 * draw.randrange(len(page) // 8 if draw.random() < 0.5 else 24)
        changed[at : at + 8] = draw.getrandbits(draw.choice((1, 8, 24, 33, 40, 64))).to_bytes(8, "little")
    return bytes(changed)


@pytest.mark.parametrize("of_node", [False, True], ids=["pool", "node"])
@pytest.mark.parametrize("kind", ["turns", "programs"])
def test_whatever_stands_in_a_page_programs_go_on(pool, kind, of_node):
    namespace, over, user = Pool.load(pool.file).namespace, pool.base / "over", os.geteuid()
    log, draw = pool.base / "mount.log", random.Random(kind)
    orchestrator = Orchestrator(pool, "--policy", "even", "--window", "50")
    pages = namespace
    if of_node:
        # As an agent leaves it that was killed.
        pages = namespace / "nodes" / os.uname().nodename
        (pages / "programs").mkdir(parents=True)
        (pages / "turns").write_bytes((namespace / "turns").read_bytes())
    pool.mount.mkdir(exist_ok=True)
    with log.open("w") as stderr:
        command = [native_paths.mount_program(), "--foreground", pool.file, pool.mount, "-o", "orchestrated"]
        mount = subprocess.Popen([*map(str, command)], stderr=stderr)
    running, progress = [], {name: pool.base / f"progress-{name}" for name in ("past", "through")}
    try:
        wait_for(pool.mount.is_mount)
        for name, options in (("past", []), ("through", ["--no-preload"])):
            run = ["run", "--quiet", "--pool", pool.file, "--program", name, *options, "--"]
            command = [sys.executable, "-c", WORKER, name, pool.mount, progress[name], over]
            running.append(subprocess.Popen([str(BIN / "stripewise"), *map(str, run + command)]))
        page = pages / ("turns" if kind == "turns" else f"programs/{user}")
        wait_for(lambda: page.exists() and all(one.exists() and one.stat().st_size for one in progress.values()))
        good = page.read_bytes()

        def goes_on_with(text):
            rounds = {name: one.stat().st_size for name, one in progress.items()}
            with page.open("r+b") as file:
                file.write(text)
            # Each is a whole round further, whose requests have all seen the page.
            wait_for(lambda: all(one.stat().st_size >= rounds[name] + 2 for name, one in progress.items()))

        for _ in range(25):
            goes_on_with(garbled(good, draw))
        assert orchestrator.process.poll() is None and mount.poll() is None
        status(pool)
        goes_on_with(draw.randbytes(len(good)))
    finally:
        over.touch()
        ended = [program.wait(timeout=PATIENCE_S) for program in running]
        subprocess.run(["umount", str(pool.mount)], check=False)
        mount.wait(timeout=PATIENCE_S)
        _, said = orchestrator.end(signal.SIGTERM)
    assert ended == [0, 0], "each has read what it wrote"
    # The orchestrator writes its own page anew, and tells of it.
    assert ("has written into the page of turns" in said) == (kind == "turns" and not of_node), said
    # Of a page of the plan that is none the mount tells once. What stands in a page of programs is bounded, not judged.
    told = log.read_text().count("the orchestrator of this pool does not answer (its ")
    assert told == 1 if kind == "turns" else told <= 1


def test_a_program_on_files_of_a_class_waits_for_others_and_is_served_when_they_end(emulated):
    hinting.hint(placing.place_of(Path(), Pool.load(emulated.file)), ["class=2"], pattern="behind.*")
    orchestrator = Orchestrator(emulated, "--policy", "none", "--window", "200")
    running = {}
    for name, file in (("first", "first.bin"), ("second", "behind.bin")):
        arguments = ["run", "--quiet", "--pool", emulated.file, "--program", name, "--", sys.executable]
        command = [*arguments, "-c", READER, emulated.mount, file, emulated.base / f"{name}-over"]
        running[name] = subprocess.Popen([str(BIN / "stripewise"), *map(str, command)])

    def end(name):
        (emulated.base / f"{name}-over").touch()
        assert running[name].wait(timeout=PATIENCE_S) == 0

    try:
        # Each request of the second program waits for two windows, and passes then.
        wait_for(lambda: by_name(status(emulated)).get("second", {"overdue": 0})["overdue"] > 3)
        assert by_name(status(emulated))["first"]["held"] == 0
        told = emulated.stripewise("hint", emulated.mount / "behind.bin", "--why").stdout
        assert "class=2" in told and "wait for those on files of a lower rank" in told
        end("first")
        before = by_name(status(emulated))["second"]
        wait_for(lambda: by_name(status(emulated))["second"]["requests"] > before["requests"] + 50)
        # What waited at the end of the other program, for the pause behind it, and no more.
        assert by_name(status(emulated))["second"]["held"] <= before["held"] + 4
    finally:
        for name in running:
            end(name)
    assert orchestrator.end(signal.SIGINT)[0] == 0


def test_what_cannot_be_orchestrated_is_named(pool):
    def refused(*arguments):
        done = pool.stripewise("orchestrate", pool.file, *arguments, check=False)
        assert done.returncode == 1
        return done.stderr

    assert "no policy is named 'fair': take one of reuse-distance" in refused("--policy", "fair")
    assert "a window of 0 ms: take 1 to 10000 ms" in refused("--window", "0")
    assert "the weight 'sim' is not NAME=VALUE" in refused("--weight", "sim")
    assert "the weight 'sim=much': 'much' is no number" in refused("--weight", "sim=much")
    assert "the weight nan of 'sim'" in refused("--weight", "sim=nan").lower()
    assert "the limit 'sim=fast'" in refused("--limit", "sim=fast")
    assert "a limit of 0 bytes per second for 'sim'" in refused("--limit", "sim=0")
    assert "no orchestrator" in pool.stripewise("orchestrate", pool.file, "--status").stdout


def test_a_unit_runs_the_command_with_its_options(pool):
    options = ["--policy", "even", "--weight", "a$b=2"]
    file, text = orchestrating.unit(Pool.load(pool.file), options, "/bin/stripewise")
    assert file.name == "stripewise-orchestrate-test.service"
    assert f'ExecStart=/bin/stripewise "orchestrate" "{pool.file}" "--policy" "even" "--weight" "a$$b=2"' in text
    assert "Restart=on-failure" in text


def test_a_unit_that_is_there_stays(tmp_path):
    file = tmp_path / "new" / "stripewise-a.service"
    assert service.install(file, "one").endswith("enable --now stripewise-a.service")
    with pytest.raises(StripewiseError, match="exists; remove it first"):
        service.install(file, "two")
    assert file.read_text() == "one"
