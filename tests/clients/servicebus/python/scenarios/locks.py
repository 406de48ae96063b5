"""Peek-lock: how long a message is somebody's, and what happens when it no longer is."""

import datetime

from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import AutoLockRenewer
from azure.servicebus.exceptions import MessageLockLostError

from checks import body, bodies, collect, equal, nothing, one, refused, send, share, until
from suite import scenario

#: Locks must hold while the clients do something: they take their real time, on a slow machine a long one.
FIVE_MINUTES = {"LockDuration": "PT5M"}


@scenario
async def a_locked_message_is_nobody_elses(stage):
    await stage.start(queues={"q": FIVE_MINUTES})
    client = stage.client()
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as holder, client.get_queue_receiver("q") as other:
        earliest = datetime.datetime.now(datetime.timezone.utc)
        message = await one(holder)
        latest = datetime.datetime.now(datetime.timezone.utc)
        # Locked somewhere in between; the clock is the same, and times are told in milliseconds.
        locked_at = message.locked_until_utc - datetime.timedelta(minutes=5)
        a_little = datetime.timedelta(seconds=1)
        equal(earliest - a_little <= locked_at <= latest + a_little, True, f"locked until {message.locked_until_utc}")
        await nothing(other)
        await holder.complete_message(message)
        await nothing(other)


@scenario
async def two_receivers_share_without_overlap(stage):
    await stage.start(queues={"q": {}})
    left, right = stage.client(), stage.client()
    await send(left, "q", *(str(number) for number in range(60)))
    async with left.get_queue_receiver("q") as one_side, right.get_queue_receiver("q") as other:
        first, second = await share(stage, "q", one_side, other)
    equal(sorted(first + second, key=int), [str(number) for number in range(60)], "each message once")


@scenario(since=(7, 15), why="it does not wait for the outcome of a settlement")
async def an_expired_lock_gives_the_message_back_and_is_counted(stage):
    await stage.start(queues={"q": FIVE_MINUTES})
    client = stage.client()
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as holder, client.get_queue_receiver("q") as other:
        message = await one(holder)
        await stage.advance(301)
        again = await one(other)
        equal(body(again), "a")
        equal(again.delivery_count, 1)
        equal(again.lock_token != message.lock_token, True, "the lock is a new one")
        with refused(MessageLockLostError):
            await holder.complete_message(message)
        equal(await stage.count("q"), 1, "messages left")
        await other.complete_message(again)
    equal(await stage.count("q"), 0, "messages left")


@scenario(since=(7, 15), why="it does not wait for the outcome of a settlement")
async def no_settlement_is_accepted_without_its_lock(stage):
    await stage.start(queues={"q": FIVE_MINUTES})
    client = stage.client()
    await send(client, "q", "complete", "abandon", "defer", "dead")
    async with client.get_queue_receiver("q") as holder:
        completed, abandoned, deferred, dead = await collect(holder, 4)
        equal(await stage.expire_locks("q"), 4, "locks")
        with refused(MessageLockLostError):
            await holder.complete_message(completed)
        with refused(MessageLockLostError):
            await holder.abandon_message(abandoned)
        with refused(MessageLockLostError):
            await holder.defer_message(deferred)
        with refused(MessageLockLostError):
            await holder.dead_letter_message(dead, reason="no")
        with refused(MessageLockLostError):
            await holder.renew_message_lock(dead)
        messages = await collect(holder, 4)
        equal(bodies(messages), ["complete", "abandon", "defer", "dead"])
        equal([message.delivery_count for message in messages], [1, 1, 1, 1])
    equal(await stage.count("q/$deadletterqueue"), 0, "dead letters")


@scenario
async def a_renewed_lock_holds_from_then_on(stage):
    await stage.start(queues={"q": FIVE_MINUTES})
    client = stage.client()
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as receiver, client.get_queue_receiver("q") as other:
        message = await one(receiver)
        before = message.locked_until_utc
        await stage.advance(160)
        renewed = await receiver.renew_message_lock(message)
        equal(renewed, message.locked_until_utc)
        longer = (renewed - before).total_seconds()
        equal(159 <= longer <= 300, True, f"locked for {longer} s longer")
        await stage.advance(160)
        await nothing(other)
        await receiver.complete_message(message)
    equal(await stage.count("q"), 0, "messages left")


@scenario(slow=True)
async def the_auto_renewer_renews_until_the_message_is_settled(stage):
    # The client renews a lock as short as this after 3 seconds.
    await stage.start(queues={"q": {"LockDuration": "PT10S"}})
    client = stage.client()
    await send(client, "q", "a")
    async with AutoLockRenewer() as renewer, client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        before = message.locked_until_utc
        renewer.register(receiver, message, max_lock_renewal_duration=60)
        await until(lambda: message.locked_until_utc > before, "the lock is renewed")
        await receiver.complete_message(message)
        equal(message.auto_renew_error, None)
    equal(await stage.count("q"), 0, "messages left")


@scenario(since=(7, 15), why="it does not wait for the outcome of a settlement")
async def a_lock_outlives_its_connection(stage):
    await stage.start(queues={"q": FIVE_MINUTES})
    client = stage.client()
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        await stage.drop_connections()
        # The client no longer has the link, and settles through the management node.
        await receiver.complete_message(message)
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def the_deliveries_of_a_dead_client_come_again_with_their_lock(stage):
    await stage.start(queues={"q": FIVE_MINUTES})
    client, other = stage.client(), stage.client()
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as receiver:
        await one(receiver)
        await stage.drop_connections()
        async with other.get_queue_receiver("q") as heir:
            await nothing(heir)
            await stage.advance(301)
            again = await one(heir)
            equal(body(again), "a")
            equal(again.delivery_count, 1)


@scenario
async def locks_of_a_dead_letter_queue_are_not_counted_into_another(stage):
    await stage.start(queues={"q": {**FIVE_MINUTES, "MaxDeliveryCount": 2}})
    client = stage.client()
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as receiver:
        await receiver.dead_letter_message(await one(receiver), reason="why")
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        for _ in range(4):
            await receiver.abandon_message(await one(receiver))
        dead = await one(receiver)
        equal(dead.dead_letter_reason, "why")
        await receiver.complete_message(dead)
