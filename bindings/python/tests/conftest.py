"""Fixtures: pools and nodes."""

import os
import re
import signal
import subprocess
import sys
import time

import farpool
import pytest


@pytest.fixture
def pool():
    with farpool.open(memory="256MiB") as opened:
        yield opened


class Node:
    """A node process, started by the program ``farpool``."""

    def __init__(self, folder, *arguments):
        program = os.environ.get("FARPOOL_PROGRAM", "farpool")
        command = [program, "serve", "--listen", "127.0.0.1:0", "--memory", "256MiB", *arguments]
        self.log = open(folder / "node.log", "w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        self.url = self._url()

    def _url(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self.log.seek(0)
            found = re.search(r"farpools?://[0-9.]+:[0-9]+", self.log.read())
            if found:
                return found[0]
            assert self.process.poll() is None, "the node did not start"
            time.sleep(0.02)
        raise AssertionError("the node did not say where it listens")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        self.log.close()


@pytest.fixture
def node(tmp_path):
    started = Node(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def python(tmp_path):
    """Returns a function that runs a script in a separate process and returns its output."""

    def run(script, timeout=40, status=0, **environment):
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", script],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=tmp_path,
            env={**os.environ, **environment},
        )
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
