"""What the scenarios have in common: sending, collecting, comparing."""

import asyncio
import contextlib
import time

from azure.servicebus import ServiceBusMessage

#: How long something may take that is expected to come.
PATIENCE = 120
#: How long nothing must come where nothing is expected.
QUIET = 1.0


def equal(actual, expected, what="value"):
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r}, expected {expected!r}")


@contextlib.contextmanager
def refused(error, *words):
    """The block must fail with exactly this error, whose text has these words."""
    try:
        yield
    except Exception as raised:
        if type(raised) is not error:
            raise AssertionError(f"refused with {raised!r}, expected {error.__name__}") from raised
        for word in words:
            if word.lower() not in str(raised).lower():
                raise AssertionError(f"{word!r} is not in {raised}") from raised
        return
    raise AssertionError(f"nothing was refused, expected {error.__name__}")


def body(message):
    return b"".join(message.body).decode()


def bodies(messages):
    return [body(message) for message in messages]


async def send(client, queue, *messages, **properties):
    """Sends each by itself; of a text it makes a message with these properties."""
    async with client.get_queue_sender(queue) as sender:
        for message in messages:
            if isinstance(message, str):
                message = ServiceBusMessage(message, **properties)
            await sender.send_messages(message)


async def collect(receiver, count):
    """Exactly `count` messages, in the order in which they came."""
    messages = []
    end = time.monotonic() + PATIENCE
    while len(messages) < count:
        if time.monotonic() > end:
            raise AssertionError(f"only {bodies(messages)} of {count} came within {PATIENCE} s")
        messages += await receiver.receive_messages(count - len(messages), max_wait_time=PATIENCE)
    return messages


async def share(stage, queue, *receivers):
    """Receives and completes everything in the queue, by all of the receivers at once; what each of them got.

    Each has some before any goes on: else the first could have it all. Nobody ends because nothing comes for a while.
    """
    shares = [await collect(receiver, 5) for receiver in receivers]

    async def work(receiver, got):
        messages = list(got)
        while True:
            for message in messages:
                await receiver.complete_message(message)
            if await stage.count(queue) == 0:
                return
            messages = await receiver.receive_messages(5, max_wait_time=QUIET)
            got += messages

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(work(receiver, got) for receiver, got in zip(receivers, shares)))
    return [bodies(got) for got in shares]


async def one(receiver):
    (message,) = await collect(receiver, 1)
    return message


async def left(stage, entity, count):
    """The entity comes to hold so many messages: clients before 7.15 do not wait for the outcome of a settlement."""

    async def held():
        return await stage.count(entity) == count

    await until(held, f"{count} messages left")


async def nothing(receiver):
    """Nothing is there to be received."""
    equal(bodies(await receiver.receive_messages(1, max_wait_time=QUIET)), [], "received")


async def until(condition, what):
    """Waits until the condition holds; it may be a coroutine function."""
    end = time.monotonic() + PATIENCE
    while True:
        held = condition()
        if asyncio.iscoroutine(held):
            held = await held
        if held:
            return
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        await asyncio.sleep(0.05)
