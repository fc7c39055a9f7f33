"""A headless Chromium, spoken to over a pipe: no driver and no further package is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from fareg import audit

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
SECONDS = 60.0
# the browser expects its commands on descriptor 3 and answers on 4
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """Chromium's debugging protocol: JSON messages that end with a zero byte."""

    def __init__(self, program, folder):
        own = [f"--user-data-dir={folder}"]
        read_commands, self._write = os.pipe()
        self._read, write_events = os.pipe()
        ends = (read_commands, write_events)
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, ends), program, *FLAGS, *own],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_events)
        self._buffer, self._id, self._session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._id:
                assert "error" not in answer, f"{method}: {answer}"
                return answer["result"]

    def _receive(self):
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], deadline - time.monotonic())
            assert ready, "Chromium does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "Chromium has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path, *, width=1280, dark=False):
        """Load a file and wait until it is there; events before it are forgotten."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._set_screen(width, 900)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key, code, text=""):
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        """Save a picture of the whole page."""
        width, height = self.evaluate("[innerWidth, document.documentElement.scrollHeight]")
        self._set_screen(width, height)
        shot = self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(shot["data"]))

    def _set_screen(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def problems(self):
        """Return console messages and exceptions since the page was opened."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.events if event["method"] in kinds]

    def requests(self):
        """Return the addresses that the page asked for."""
        sent = (e for e in self.events if e["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def close(self):
        session, self._session = self._session, None
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        self._session = session
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no Chromium on the PATH (looked for {', '.join(NAMES)})")
    browser = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def evil_summary():
    """Return the summary of an audit whose column and level names are markup."""
    rng = np.random.default_rng(0)
    n, evil = 900, "<script>alert(1)</script>"
    X = pd.DataFrame(
        {
            evil: rng.choice([evil, "a & b", '"quoted"'], n),
            "region": rng.choice(["north", "south", "west"], n),
            "member": rng.random(n) < 0.5,
        }
    )
    covered = rng.random(n) < np.where(X[evil] == evil, 0.7, 1.0)
    sets = [["yes", "no"][: 1 + (i % 2)] if c else [] for i, c in enumerate(covered)]
    result = audit(X, ["yes"] * n, sets, n_directions=10, n_permutations=20, random_state=0)
    assert result.status == "finding"
    return result.to_dict()
