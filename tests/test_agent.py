"""`stripewise agent` and `stripewise orchestrate --listen`: programs of several nodes that take turns."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import BIN
from stripewise.api import orchestrating
from test_orchestrate import PATIENCE_S, READER, by_name, wait_for

PORT = 7077
WINDOW_S = 0.1


def test_what_an_orchestrator_or_an_agent_cannot_use_is_named(pool, tmp_path):
    keys = tmp_path / "keys"
    orchestrate = ("orchestrate", pool.file, "--listen")

    def refused(*arguments):
        done = pool.stripewise(*arguments, check=False)
        assert done.returncode == 1
        return done.stderr

    def refused_by_program(*arguments):
        """The same without a start of Python's."""
        command = [str(orchestrating.agent_program()), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode != 0
        return done.stderr

    assert "`stripewise agent new-key NODE`" in refused(*orchestrate, "0")
    keys.write_text(pool.stripewise("agent", "new-key", "n1").stdout)
    keys.chmod(0o644)
    assert "its mode 644 lets other users at it" in refused(*orchestrate, "0", "--keys", keys)
    keys.chmod(0o600)
    listen = (*orchestrate[:2], "--policy", "even", "--keys", keys, "--window-ms")
    assert "'somewhere' is no address to listen on" in refused_by_program(*listen, "500", "--listen", "somewhere")
    assert "a window of 0 ms" in refused_by_program(*listen, "0", "--listen", "0")
    assert "'../n' is no name of a node" in refused_by_program("new-key", "../n")
    join = ("join", pool.file, "--keys", keys, "--orchestrator", "127.0.0.1:1")
    assert f"the file of keys has none of node '{os.uname().nodename}'" in refused_by_program(*join)
    keys.write_text("n1 secret\n")
    assert "line 1 is not `NODE KEY`" in refused_by_program(*join)
    assert not list(tmp_path.rglob("nodes"))


WATCH = """
import json, sys
from stripewise import _native
for pool in sys.stdin:
    print(json.dumps(_native.orchestration(pool.strip())), flush=True)
"""
"""Says what `orchestrate --status --json` does, each time it is asked, without starting anew."""


AHEAD_S = 3600
"""How far the clock of one node is ahead."""


def clock(ahead_s):
    """Options of `unshare` for a clock of its own, where the kernel gives a program that begins by `exec` one."""
    options = ["--time", "--monotonic", str(ahead_s)]
    read = ["unshare", *options, sys.executable, "-c", "import time; print(time.monotonic())"]
    done = subprocess.run(read, capture_output=True, text=True, check=False)
    is_there = done.returncode == 0 and float(done.stdout) > time.monotonic() + ahead_s / 2
    return options if is_there else []


class Node:
    """A machine: a name, a network and a clock of its own."""

    def __init__(self, name, pool, ahead_s=0):
        self.name, self.pool = name, pool
        self.clock = clock(ahead_s) if ahead_s else []
        self.space = f"sw{os.getpid()}{name}"
        subprocess.run(["ip", "netns", "add", self.space], check=True)
        command = self.command(sys.executable, "-c", WATCH)
        self.watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def command(self, *arguments):
        own_name = 'hostname "$0" && exec "$@"'
        return [
            *(
                "nsenter",
                f"--net=/run/netns/{self.space}",
                "unshare",
                "--uts",
                *self.clock,
                "sh",
                "-c",
                own_name,
                self.name,
            ),
            *map(str, arguments),
        ]

    def start(self, *arguments, **options):
        return subprocess.Popen(self.command(BIN / "stripewise", *arguments), **options)

    def ip(self, *arguments):
        subprocess.run(["ip", "-n", self.space, *arguments], check=True)

    def status(self):
        self.watch.stdin.write(f"{self.pool.file}\n")
        self.watch.stdin.flush()
        return json.loads(self.watch.stdout.readline())

    def nodes(self):
        return {of["name"]: of for of in self.status()["nodes"]}

    def program(self):
        """The one program of this node, as its pages have it."""
        found = by_name(self.status())
        return found.get(self.name, {"held": 0, "in_turn": 0, "unanswered": 0})

    def wait_for_more(self, what):
        before = self.program()[what]
        wait_for(lambda: self.program()[what] > before + 5)


@pytest.fixture
def nodes(pool):
    """`hub`, and `n1` and `n2` with a wire to it each. Those of crates/agent delay and lose packets."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "unshare", "hostname"))):
        pytest.skip("NOT RUN: only root makes networks, with ip, nsenter, unshare and hostname")
    made = []
    try:
        for name, ahead_s in (("hub", 0), ("n1", 0), ("n2", AHEAD_S)):
            made.append(Node(name, pool, ahead_s))
        hub = made[0]
        hub.ip("link", "set", "lo", "up")
        for number, node in enumerate(made[1:], 1):
            wire = f"to{number}"
            hub.ip("link", "add", wire, "type", "veth", "peer", "name", "wire", "netns", node.space)
            hub.ip("addr", "add", f"10.99.{number}.1/24", "dev", wire)
            hub.ip("link", "set", wire, "up")
            node.ip("addr", "add", f"10.99.{number}.2/24", "dev", "wire")
            node.ip("link", "set", "wire", "up")
        yield made
    finally:
        for node in made:
            node.watch.stdin.close()
            node.watch.wait(timeout=PATIENCE_S)
            subprocess.run(["ip", "netns", "del", node.space], check=False)


@pytest.fixture
def running():
    """Processes that end when the test does."""
    started = []
    yield started
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        process.wait(timeout=PATIENCE_S)


def test_programs_of_two_nodes_take_turns_whatever_happens_between_them(pool, nodes, running, tmp_path):
    hub, one, two = nodes
    over, keys = tmp_path / "over", tmp_path / "keys"
    keys.write_text("".join(pool.stripewise("agent", "new-key", node.name).stdout for node in (one, two)))
    keys.chmod(0o600)

    def orchestrate(log):
        options = [
            "--policy",
            "even",
            "--window",
            f"{WINDOW_S * 1000:g}",
            "--listen",
            f"0.0.0.0:{PORT}",
            "--keys",
            keys,
        ]
        with log.open("w") as stderr:
            running.append(hub.start("orchestrate", pool.file, *options, stderr=stderr))
        wait_for(lambda: "agents join at" in log.read_text() or running[-1].poll() is not None)
        return running[-1]

    orchestrator = orchestrate(tmp_path / "log1")
    agents, programs = [], []
    for number, node in enumerate((one, two), 1):
        join = ["agent", "join", pool.file, "--orchestrator", f"10.99.{number}.1:{PORT}", "--keys", keys]
        with (tmp_path / node.name).open("w") as stderr:
            agents.append(node.start(*join, stderr=stderr))
        running.append(agents[-1])
    wait_for(lambda: (tmp_path / "log1").read_text().count("has joined") == 2)
    for node in (one, two):
        reader = [sys.executable, "-c", READER, pool.mount, node.name, over]
        options = ["--quiet", "--pool", pool.file, "--program", node.name]
        programs.append(node.start("run", *options, "--", *reader))
    try:
        for node in (one, two):
            node.wait_for_more("held")
            node.wait_for_more("in_turn")

        # The orchestrator tells of all nodes, on each of them.
        def are_known():
            found = two.nodes()
            have_programs = found.keys() == {"hub", "n1", "n2"} and found["n1"]["programs"] and found["n2"]["servers"]
            return found if have_programs else None

        known = wait_for(are_known)
        assert all(of["is_joined"] for of in known.values())
        for name, node in (("n1", one), ("n2", two)):
            wait_for(lambda name=name: hub.nodes()[name]["clock_offset_s"] is not None)
            assert round(hub.nodes()[name]["clock_offset_s"]) == (AHEAD_S if node.clock else 0)
        assert known["n2"]["address"].startswith("10.99.2.2:") and known["hub"]["address"] is None
        status = ("orchestrate", pool.file, "--status")
        of_n1 = re.compile(r"^n1 +10\.99\.1\.2:\d+ .* n1 *$", flags=re.MULTILINE)
        wait_for(lambda: of_n1.search(pool.stripewise(*status).stdout))
        # So `top` does, for the node on which it runs and for the others.
        top = one.command(BIN / "stripewise", "top", "--pool", pool.file, "--once")

        def shows_slices():
            done = subprocess.run(top, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
            # A busy machine may keep a program from its requests until it has no slice. The first that asked is first.
            slices = re.search(r"^slices: (.+)$", done.stdout, flags=re.MULTILINE)
            named = {part.split()[0] for part in slices[1].split(", ")} if slices else set()
            return done.stdout if named == {"n1", "n2"} and re.search(other, done.stdout, re.MULTILINE) else None

        program, server = r"program  .*\nn2  .*\n", r"server  .*\nhdd\.0 +[1-9][\d,]* +[1-9]"
        other = rf"^node n2 at 10\.99\.2\.2:\d+: gates [a-z ]+\n *{program} *{server}"
        shown = wait_for(shows_slices)
        assert re.search(r"^node hub: gates [a-z ]+, no program$", shown, flags=re.MULTILINE), shown
        assert "node n1" not in shown, shown
        # A node is cut off, and the agent of the other one stands still: both go on without turns. Neither says more,
        # and after a while they count as gone: the log says which.
        hub.ip("link", "set", "to2", "down")
        agents[0].send_signal(signal.SIGSTOP)
        for node in (one, two):
            node.wait_for_more("unanswered")
        silent = "it is silent for 10 s"
        for number in (1, 2):
            gone = rf"node n{number} at 10\.99\.{number}\.2:\d+: is gone: {silent}; its programs have no part in plans"
            wait_for(lambda gone=gone: re.search(gone, (tmp_path / "log1").read_text()))
        wait_for(lambda: f"no orchestrator at 10.99.2.1:{PORT}: {silent}; the gates" in (tmp_path / "n2").read_text())
        # They are back when the network is whole again and the agent goes on.
        hub.ip("link", "set", "to2", "up")
        agents[0].send_signal(signal.SIGCONT)
        for node in (one, two):
            node.wait_for_more("in_turn")
        # The orchestrator is killed, in the middle of a window as most of its time is, and comes back.
        orchestrator.kill()
        for node in (one, two):
            node.wait_for_more("unanswered")
        orchestrate(tmp_path / "log2")
        for node in (one, two):
            node.wait_for_more("held")
            node.wait_for_more("in_turn")
        # An agent that is told to end says so, and its node's gates are open.
        agents[1].terminate()
        assert agents[1].wait(timeout=PATIENCE_S) == 0
        log = tmp_path / "log2"
        wait_for(lambda: "has left; its programs have no part in plans any more" in log.read_text())
        assert "is gone" not in log.read_text()
    finally:
        over.touch()
        # What they read was what they wrote.
        ended = [program.wait(timeout=PATIENCE_S) for program in programs]
    assert ended == [0, 0]
    assert "node n1 at 10.99.1.2:" in (tmp_path / "log2").read_text()
