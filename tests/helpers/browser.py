"""A headless Chromium, driven over a pipe in its DevTools protocol: no driver, no network."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    *("--disable-dev-shm-usage", "--force-color-profile=srgb"),
)
ANSWER_SECONDS, WAIT_SECONDS = 60, 30


def find_chromium():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """A page of a browser."""

    def __init__(self, reader, writer):
        self._reader, self._writer, self._buffer, self._last = reader, writer, b"", 0
        self.session, self.requested, self.errors = None, [], []

    def call(self, method, **parameters):
        """The result of a command."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            while b"\0" not in self._buffer:
                assert select.select([self._reader], [], [], until - time.monotonic())[0], f"no answer to {method}"
                self._buffer += os.read(self._reader, 1 << 20)
            line, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self._last:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        parameters = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"])
        elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"])

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def js(self, expression):
        """The value of an expression, or of its promise."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true; return its value."""
        last = time.monotonic() + WAIT_SECONDS
        while not (value := self.js(expression)):
            assert time.monotonic() < last, f"never true: {expression}\n{self.js('document.body.innerText')}"
            time.sleep(0.03)
        return value

    def write(self, text):
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key, code=0):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def point(self, selector):
        """Move the mouse to the middle of an element."""
        x, y = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector):
        x, y = self.point(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose_file(self, selector, path):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def colours(self, scheme):
        """Prefer light or dark colours."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def wait_for(self, condition):
        """Wait until something outside of the page is true."""
        last = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < last, "it never became true"
            time.sleep(0.03)

    def screenshot(self, path, height=None):
        """The whole page, or the upper part of it, as PNG."""
        clip = {}
        if height is not None:
            width = self.js("document.documentElement.clientWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True, **clip)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser():
    """A page of a new browser, which ends with the `with`."""
    to_child, from_us = os.pipe()
    to_us, from_child = os.pipe()
    high = [fcntl.fcntl(handle, fcntl.F_DUPFD, 50) for handle in (to_child, from_child)]

    def connect():
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [find_chromium(), *FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=connect,  # noqa: PLW1509 two calls of dup2
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for handle in (to_child, from_child, *high):
            os.close(handle)
        try:
            page = Page(to_us, from_us)
            target = page.call("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "DOM", "Log"):
                page.call(f"{domain}.enable")
            page.call("Emulation.setFocusEmulationEnabled", enabled=True)
            yield page
        finally:
            process.terminate()
            process.wait(20)
            os.close(to_us)
            os.close(from_us)
