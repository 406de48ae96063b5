"""Schedules, times to live, duplicates, and looking without taking."""

import datetime

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError

from checks import bodies, body, collect, equal, left, nothing, one, refused, send
from suite import scenario


def seconds(number):
    return datetime.timedelta(seconds=number)


def in_(number):
    return datetime.datetime.now(datetime.timezone.utc) + seconds(number)


@scenario
async def a_scheduled_message_comes_when_its_time_has_come(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    async with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
        (number,) = await sender.schedule_messages(ServiceBusMessage("later", message_id="m-1"), in_(1200))
        await sender.send_messages(ServiceBusMessage("now"))
        message = await one(receiver)
        equal(body(message), "now")
        await receiver.complete_message(message)
        await nothing(receiver)
        scheduled = [m for m in await receiver.peek_messages(5, sequence_number=1) if body(m) == "later"]
        equal([(m.sequence_number, m.state.name) for m in scheduled], [(number, "SCHEDULED")])
        await stage.advance(1201)
        message = await one(receiver)
        equal(body(message), "later")
        equal(message.message_id, "m-1")
        equal(message.state.name, "ACTIVE")
        equal(message.sequence_number > number, True, "active under a new sequence number")
        equal(message.delivery_count, 0)


@scenario
async def a_message_can_be_sent_with_its_time(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "later", scheduled_enqueue_time_utc=in_(1200))
    async with client.get_queue_receiver("q") as receiver:
        await nothing(receiver)
        await stage.advance(1201)
        equal(body(await one(receiver)), "later")


@scenario
async def several_are_scheduled_at_once_and_cancelled(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    async with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
        messages = [ServiceBusMessage(text) for text in ("a", "b", "c")]
        numbers = await sender.schedule_messages(messages, in_(1200))
        equal(len(set(numbers)), 3, "sequence numbers")
        await sender.cancel_scheduled_messages([numbers[0], numbers[2]])
        await stage.advance(1201)
        equal(body(await one(receiver)), "b")
        await nothing(receiver)


@scenario
async def what_is_not_scheduled_cannot_be_cancelled(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    async with client.get_queue_sender("q") as sender:
        (number,) = await sender.schedule_messages(ServiceBusMessage("a"), in_(1200))
        await sender.cancel_scheduled_messages(number)
        with refused(MessageNotFoundError):
            await sender.cancel_scheduled_messages(number)
        with refused(MessageNotFoundError):
            await sender.cancel_scheduled_messages(4711)


@scenario
async def an_expired_message_is_gone(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "short", time_to_live=seconds(10))
    await send(client, "q", "long", time_to_live=seconds(1000))
    await stage.advance(11)
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        equal(body(message), "long")
        equal(message.time_to_live, seconds(1000))
        equal(message.expires_at_utc - message.enqueued_time_utc, seconds(1000))
    equal(await stage.count("q/$deadletterqueue"), 0, "dead letters")


@scenario
async def an_expired_message_is_dead_lettered_where_it_is_so_configured(stage):
    await stage.start(queues={"q": {"DefaultMessageTimeToLive": "PT1M", "DeadLetteringOnMessageExpiration": True}})
    client = stage.client()
    # The queue's time is the longest there is.
    await send(client, "q", "old", time_to_live=seconds(1000))
    await stage.advance(61)
    async with client.get_queue_receiver("q") as receiver:
        await nothing(receiver)
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead = await one(receiver)
        equal(body(dead), "old")
        equal(dead.dead_letter_reason, "TTLExpiredException")
        # There it stays.
        await receiver.abandon_message(dead)
        await stage.advance(10_000)
        equal(body(await one(receiver)), "old")


@scenario
async def a_locked_message_does_not_expire(stage):
    await stage.start(queues={"q": {"LockDuration": "PT5M"}})
    client = stage.client()
    await send(client, "q", "a", time_to_live=seconds(100))
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        await stage.advance(120)
        await receiver.complete_message(message)
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def a_duplicate_is_swallowed_within_the_window(stage):
    await stage.start(
        queues={"q": {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT1H"}}
    )
    client = stage.client()
    await send(client, "q", "first", "again", ServiceBusMessage("other", message_id="other"), message_id="same")
    async with client.get_queue_sender("q") as sender:
        await sender.schedule_messages(ServiceBusMessage("scheduled", message_id="same"), in_(600))
    async with client.get_queue_receiver("q") as receiver:
        messages = await collect(receiver, 2)
        equal(bodies(messages), ["first", "other"])
        for message in messages:
            await receiver.complete_message(message)
        await left(stage, "q", 0)
        await stage.advance(660)
        await nothing(receiver)
        # What was completed is remembered too, until the window has passed.
        await send(client, "q", "third", message_id="same")
        await nothing(receiver)
        await stage.advance(3601)
        await send(client, "q", "fourth", message_id="same")
        equal(body(await one(receiver)), "fourth")


@scenario(since=(7, 14), why="each peek begins at the front")
async def peeking_takes_and_locks_nothing(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", *(str(number) for number in range(10)))
    async with client.get_queue_receiver("q") as receiver:
        equal(bodies(await receiver.peek_messages(3)), ["0", "1", "2"])
        # A receiver goes on where it was.
        equal(bodies(await receiver.peek_messages(3)), ["3", "4", "5"])
        equal(bodies(await receiver.peek_messages(9, sequence_number=8)), ["7", "8", "9"])
        equal(bodies(await receiver.peek_messages(9, sequence_number=11)), [])
        locked = await one(receiver)
        equal(body(locked), "0")
        (peeked,) = await receiver.peek_messages(1, sequence_number=1)
        equal(body(peeked), "0")
        equal(peeked.lock_token, None)
        with refused(ValueError):
            await receiver.complete_message(peeked)
        await receiver.complete_message(locked)
        equal(bodies(await receiver.peek_messages(1, sequence_number=1)), ["1"])
