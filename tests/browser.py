"""A browser without a window, told what to do through a pair of pipes: the DevTools protocol needs nothing else."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from dataclasses import dataclass, field

from conftest import PATIENCE_S

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def executable():
    """The browser; a test that needs it fails with what to install."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "no Chromium: apt-get install chromium-headless-shell (or chromium)"
    return found


@dataclass
class Browser:
    """One page. Everything that it asks of a network, says on its console or fails at is kept."""

    profile: str
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __enter__(self):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()
        options = ["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--headless", "--disable-dev-shm-usage", f"--user-data-dir={self.profile}"]
        # The protocol's descriptors are 3 and 4.
        shell = f'exec 3<&{to_read} 4>&{from_write}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", executable(), *options],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self.buffer, self.next_id, self.session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to_write)
        os.close(self.from_read)

    def call(self, method, **parameters):
        """Sends a command and returns its result."""
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.next_id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self):
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.from_read], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self.from_read, 1 << 20)
            assert more, "the browser has ended"
            self.buffer += more
        message, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(message)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, parameters):
        if method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(json.dumps(parameters["entry"]))

    def look(self, width, height=900, scheme="light", media=""):
        """Sets the window and what the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def open(self, path):
        """Loads a file and waits until it is loaded."""
        self.call("Page.navigate", url=path.absolute().as_uri())
        assert self.run("new Promise(done => document.readyState === 'complete' ? done(1) : onload = () => done(1))")

    def run(self, script):
        """The value of a script, or of the promise that it gives."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key):
        """Presses a key by its name."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path, whole=True):
        """A PNG of the page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
