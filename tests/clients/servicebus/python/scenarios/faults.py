"""What breaks in the middle, and that the clients go on."""

import datetime

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from checks import bodies, body, collect, equal, left, nothing, one, send
from suite import scenario

DETECTS = {"q": {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT5M"}}


@scenario(slow=True, since=(7, 14), why="it ends with a WebSocket that was cut")
async def a_sender_goes_on_after_its_connection_is_cut(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_backoff_factor=0.1)
    async with client.get_queue_sender("q") as sender:
        for number in range(12):
            if number % 4 == 2:
                await stage.drop_connections()
            await sender.send_messages(ServiceBusMessage(str(number)))
    async with client.get_queue_receiver("q") as receiver:
        seen = bodies(await collect(receiver, await stage.count("q")))
    # At least once: a send whose answer was cut off is sent again.
    equal(sorted(set(seen), key=int), [str(number) for number in range(12)])


@scenario(slow=True, since=(7, 15), why="it does not wait for the outcome of a settlement")
async def a_receiver_goes_on_after_its_connection_is_cut(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_backoff_factor=0.1)
    await send(client, "q", *(str(number) for number in range(12)))
    seen = []
    async with client.get_queue_receiver("q") as receiver:
        while len(seen) < 12:
            message = await one(receiver)
            if len(seen) % 4 == 2:
                await stage.drop_connections()
            await receiver.complete_message(message)
            seen.append(body(message))
    equal(seen, [str(number) for number in range(12)])
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def a_receiver_goes_on_after_its_link_is_detached(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_backoff_factor=0.1)
    await send(client, "q", "a", "b")
    async with client.get_queue_receiver("q") as receiver:
        await receiver.complete_message(await one(receiver))
        await left(stage, "q", 1)
        await stage.detach("q")
        message = await one(receiver)
        equal(body(message), "b")
        await receiver.complete_message(message)
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def a_sender_goes_on_after_its_link_is_detached(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_backoff_factor=0.1)
    async with client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("a"))
        await stage.detach("q")
        await sender.send_messages(ServiceBusMessage("b"))
    equal(await stage.count("q"), 2, "messages")


@scenario
async def links_that_were_idle_for_too_long_are_attached_again(stage):
    await stage.start(queues={"q": {}}, idle_links=600)
    client = stage.client(retry_backoff_factor=0.1)
    async with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
        await sender.send_messages(ServiceBusMessage("a"))
        await receiver.complete_message(await one(receiver))
        await left(stage, "q", 0)
        await stage.advance(599)
        await sender.send_messages(ServiceBusMessage("b"))
        await stage.advance(601)
        await sender.send_messages(ServiceBusMessage("c"))
        seen = bodies(await collect(receiver, 2))
    equal(seen, ["b", "c"])


@scenario(slow=True, since=(7, 15), why="it waits for an answer without end")
async def a_send_without_answer_is_sent_again_and_detected(stage):
    await stage.start(queues=DETECTS)
    client = stage.client(retry_backoff_factor=0.1, try_timeout=10)
    async with client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("a", message_id="a"))
        await stage.lose_replies(1)
        await sender.send_messages(ServiceBusMessage("b", message_id="b"))
    equal(await stage.count("q"), 2, "messages")
    async with client.get_queue_receiver("q") as receiver:
        equal(bodies(await collect(receiver, 2)), ["a", "b"])
        await nothing(receiver)


@scenario
async def all_but_locks_outlives_a_crash(stage):
    await stage.start(queues={"q": {"LockDuration": "PT5M"}}, stored=True)
    client = stage.client(retry_backoff_factor=0.1)
    await send(client, "q", "locked", "failed", "dead", "deferred", "done")
    async with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
        locked, failed, dead, deferred, done = await collect(receiver, 5)
        await receiver.abandon_message(failed)
        await receiver.dead_letter_message(dead, reason="why")
        await receiver.defer_message(deferred)
        await receiver.complete_message(done)
        await left(stage, "q", 3)
        when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=10)
        await sender.schedule_messages(ServiceBusMessage("scheduled"), when)
        await stage.restart()
        # The receiver connects again by itself.
        again = await collect(receiver, 2)
        equal([(body(m), m.delivery_count, m.sequence_number) for m in again], [("locked", 0, 1), ("failed", 1, 2)])
        (called,) = await receiver.receive_deferred_messages(deferred.sequence_number)
        equal(body(called), "deferred")
        for message in [*again, called]:
            await receiver.complete_message(message)
        await stage.advance(601)
        equal(body(await one(receiver)), "scheduled")
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = await one(receiver)
        equal((body(message), message.dead_letter_reason), ("dead", "why"))
