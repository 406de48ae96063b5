"""Sessions: one receiver for one id, in order, with a state and a lock of their own."""

import asyncio

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from checks import PATIENCE, bodies, body, collect, equal, one, refused, send, nothing, until
from suite import scenario

#: Locked for longer than a slow machine takes, and than anything here is waited for.
SESSIONS = {"s": {"RequiresSession": True, "LockDuration": "PT5M"}}


@scenario
async def a_session_is_received_alone_and_in_order(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client()
    messages = [ServiceBusMessage(f"{id}{n}", session_id=id) for n in range(5) for id in ("a", "b")]
    await send(client, "s", *messages)
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        equal(receiver.session.session_id, "a")
        messages = await collect(receiver, 5)
        equal(bodies(messages), ["a0", "a1", "a2", "a3", "a4"])
        equal({message.session_id for message in messages}, {"a"})
        for message in messages:
            await receiver.complete_message(message)
        await nothing(receiver)
    equal(await stage.count("s"), 5, "messages left")


@scenario
async def the_next_session_is_one_that_nobody_has(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client()
    await send(client, "s", "x", session_id="one")
    await send(client, "s", "y", session_id="two")
    async with client.get_queue_receiver("s", session_id=NEXT_AVAILABLE_SESSION) as first:
        async with client.get_queue_receiver("s", session_id=NEXT_AVAILABLE_SESSION) as second:
            ids = {first.session.session_id, second.session.session_id}
            equal(ids, {"one", "two"})
            equal(sorted([body(await one(first)), body(await one(second))]), ["x", "y"])


@scenario(since=(7, 12), why="it does not tell the server how long it waits")
async def without_a_free_session_the_client_is_told_in_time(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client(retry_total=0)
    began = asyncio.get_running_loop().time()
    with refused(OperationTimeoutError):
        async with client.get_queue_receiver("s", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2):
            pass
    took = asyncio.get_running_loop().time() - began
    # Who does not say how long is told after a minute.
    equal(took < 50, True, f"took {took:.1f} s")


@scenario
async def who_waits_for_a_session_gets_the_one_that_comes(stage):
    await stage.start(queues=SESSIONS)
    client, other = stage.client(), stage.client()

    async def waits():
        async with client.get_queue_receiver("s", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE) as receiver:
            return receiver.session.session_id, body(await one(receiver))

    waiting = asyncio.create_task(waits())
    await until(lambda: stage.waiting("s"), "it waits")
    await send(other, "s", "hello", session_id="new")
    equal(await waiting, ("new", "hello"))


@scenario
async def a_taken_session_cannot_be_taken(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client(retry_total=0)
    async with client.get_queue_receiver("s", session_id="a"):
        with refused(SessionCannotBeLockedError):
            async with client.get_queue_receiver("s", session_id="a"):
                pass
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        equal(receiver.session.session_id, "a")


@scenario
async def a_session_has_a_state(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client()
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        equal(await receiver.session.get_state(), None)
        await receiver.session.set_state("step 1")
        equal(await receiver.session.get_state(), b"step 1")
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        equal(await receiver.session.get_state(), b"step 1")
        await receiver.session.set_state(None)
        equal(await receiver.session.get_state(), None)


@scenario
async def a_renewed_session_lock_holds_from_then_on(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client(retry_total=0)
    await send(client, "s", "x", session_id="a")
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        message = await one(receiver)
        before = receiver.session.locked_until_utc
        await stage.advance(160)
        renewed = await receiver.session.renew_lock()
        equal(renewed > before, True, "locked for longer")
        await stage.advance(160)
        with refused(SessionCannotBeLockedError):
            async with client.get_queue_receiver("s", session_id="a"):
                pass
        await receiver.complete_message(message)
    equal(await stage.count("s"), 0, "messages left")


@scenario(since=(7, 15), why="it does not wait for the outcome of a settlement")
async def a_lost_session_settles_nothing(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client(retry_total=0)
    await send(client, "s", "x", session_id="a")
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        message = await one(receiver)
        await stage.advance(301)
        with refused(SessionLockLostError):
            await receiver.complete_message(message)
        with refused(SessionLockLostError):
            await receiver.receive_messages(max_wait_time=PATIENCE)
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        again = await one(receiver)
        equal(body(again), "x")
        equal(again.delivery_count, 1)
        await receiver.complete_message(again)


@scenario
async def a_lost_session_has_no_state_and_no_renewal(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client(retry_total=0)
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        await stage.expire_session("s", "a")
        with refused(SessionLockLostError):
            await receiver.session.renew_lock()
    async with client.get_queue_receiver("s", session_id="b") as receiver:
        await stage.expire_session("s", "b")
        with refused(SessionLockLostError):
            await receiver.session.set_state("x")


@scenario
async def messages_of_a_session_settle_in_each_way(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client()
    await send(client, "s", "abandon", "dead", "defer", session_id="a")
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        abandoned, dead, deferred = await collect(receiver, 3)
        await receiver.dead_letter_message(dead, reason="why")
        await receiver.defer_message(deferred)
        await receiver.abandon_message(abandoned)
        again = await one(receiver)
        equal((body(again), again.delivery_count), ("abandon", 1))
        await receiver.complete_message(again)
        (called,) = await receiver.receive_deferred_messages(deferred.sequence_number)
        equal(body(called), "defer")
        await receiver.complete_message(called)
        equal(bodies(await receiver.peek_messages(5, sequence_number=1)), [])
    # The dead-letter queue of an entity with sessions has none.
    async with client.get_queue_receiver("s", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = await one(receiver)
        equal((body(message), message.session_id, message.dead_letter_reason), ("dead", "a", "why"))


@scenario
async def a_closed_session_is_free_at_once(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client(retry_total=0)
    await send(client, "s", "x", session_id="a")
    async with client.get_queue_receiver("s", session_id="a") as receiver:
        equal(body(await one(receiver)), "x")
    async with client.get_queue_receiver("s", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE) as receiver:
        equal(receiver.session.session_id, "a")
        equal(body(await one(receiver)), "x")


@scenario(since=(7, 15), why="it lists no sessions")
async def sessions_are_listed(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client()
    await send(client, "s", *(ServiceBusMessage("x", session_id=id) for id in ("a", "b", "c")))
    equal(sorted([session async for session in client.list_queue_sessions("s")]), ["a", "b", "c"])


@scenario
async def an_entity_with_sessions_takes_no_message_without(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client(retry_total=0)
    async with client.get_queue_sender("s") as sender:
        with refused(ServiceBusError, "session"):
            await sender.send_messages(ServiceBusMessage("x"))
    equal(await stage.count("s"), 0, "messages left")


@scenario
async def an_entity_with_sessions_has_no_receiver_without(stage):
    await stage.start(queues=SESSIONS)
    client = stage.client(retry_total=0)
    with refused(ServiceBusError, "session"):
        async with client.get_queue_receiver("s") as receiver:
            await receiver.receive_messages(max_wait_time=PATIENCE)


@scenario
async def an_entity_without_sessions_gives_none(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    with refused(ServiceBusError, "session"):
        async with client.get_queue_receiver("q", session_id="a") as receiver:
            await receiver.receive_messages(max_wait_time=PATIENCE)
