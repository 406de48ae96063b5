"""A broker for one scenario, real or emulated. `../../src/rabbitmq/stage.rs` answers: one line of JSON for each request."""

import asyncio
import json
import logging
import os
import socket
import time

#: How many scenarios run at once, and how long one may take before it counts as hanging.
AT_ONCE = 12
LONGEST = 180
#: How long something that must happen may take on a slow machine.
PATIENCE = 60

# The clients log every refusal that a scenario asks for.
logging.disable(logging.CRITICAL)


class Stage:
    def __init__(self):
        host, port = os.environ["REDRIVE_STAGE"].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._lines = self._socket.makefile("rw")
        self._names = []
        answer = self._ask(do="start")
        self.url = answer["url"]
        self.is_new = answer["version"] != "3.10"
        self._prefix = answer["prefix"]

    @classmethod
    async def open(cls):
        return await asyncio.to_thread(cls)

    def name(self, name):
        """A name that nobody else uses; what is declared under it is deleted at the end."""
        self._names.append(self._prefix + name)
        return self._names[-1]

    def pass_time(self, milliseconds):
        self._ask(do="pass", milliseconds=milliseconds)

    def cut(self):
        """Cuts all connections without a word."""
        self._ask(do="cut")

    async def close(self):
        await self.aio(lambda: self._ask(do="close", names=self._names))
        self._socket.close()

    def abandon(self):
        self._socket.close()

    async def aio(self, function, *arguments):
        """Calls a method of this stage from a coroutine."""
        return await asyncio.to_thread(function, *arguments)

    def _ask(self, **request):
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        answer = json.loads(self._lines.readline() or '{"error": "the stage is gone"}')
        if "error" in answer:
            raise RuntimeError(f"the stage cannot {request}: {answer['error']}")
        return answer


def eventually(look, what):
    """Waits until `look` gives something true, and gives it back."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if seen := look():
            return seen
        time.sleep(0.005)
    raise AssertionError(f"not within {PATIENCE} s: {what}")


async def aio_eventually(look, what):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if seen := await look():
            return seen
        await asyncio.sleep(0.005)
    raise AssertionError(f"not within {PATIENCE} s: {what}")
