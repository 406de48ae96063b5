"""Complete, abandon, defer, dead-letter."""

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageAlreadySettled, MessageNotFoundError, ServiceBusError

from checks import bodies, body, collect, equal, nothing, one, refused, send, share
from suite import scenario

DLQ = "q/$deadletterqueue"


@scenario
async def an_abandoned_message_returns_to_its_place_and_is_counted(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "a", "b")
    async with client.get_queue_receiver("q") as receiver:
        first = await one(receiver)
        await receiver.abandon_message(first)
        again = await one(receiver)
        equal(body(again), "a")
        equal(again.delivery_count, 1)
        equal(again.sequence_number, first.sequence_number)
        equal(again.lock_token != first.lock_token, True, "the lock is a new one")
        await receiver.complete_message(again)
        equal(body(await one(receiver)), "b")


@scenario
async def settling_twice_is_refused(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        await receiver.complete_message(message)
        with refused(MessageAlreadySettled):
            await receiver.complete_message(message)


@scenario
async def a_dead_letter_has_reason_and_description(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "bad", message_id="m-7", application_properties={"mine": 1})
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        await receiver.dead_letter_message(message, reason="PoisonMessage", error_description="cannot be read: ü")
        await nothing(receiver)
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead = await one(receiver)
        equal(body(dead), "bad")
        equal(dead.message_id, "m-7")
        equal(dead.sequence_number, message.sequence_number)
        equal(dead.dead_letter_reason, "PoisonMessage")
        equal(dead.dead_letter_error_description, "cannot be read: ü")
        equal(dead.application_properties[b"mine"], 1)
        await receiver.complete_message(dead)
        await nothing(receiver)
    equal(await stage.count(DLQ), 0, "messages left")


@scenario
async def a_dead_letter_without_reason_has_none(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "bad")
    async with client.get_queue_receiver("q") as receiver:
        await receiver.dead_letter_message(await one(receiver))
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead = await one(receiver)
        equal(dead.dead_letter_reason, None)
        equal(dead.dead_letter_error_description, None)


@scenario(since=(7, 15), why="it does not wait for the outcome of a settlement")
async def nothing_is_dead_lettered_out_of_a_dead_letter_queue(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    await send(client, "q", "bad")
    async with client.get_queue_receiver("q") as receiver:
        await receiver.dead_letter_message(await one(receiver), reason="first")
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead = await one(receiver)
        with refused(ServiceBusError):
            await receiver.dead_letter_message(dead, reason="second")
    equal(await stage.count(DLQ), 1, "messages in the dead-letter queue")


@scenario
async def nobody_sends_to_a_dead_letter_queue(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    async with client.get_queue_sender("q"):
        pass
    with refused(ServiceBusError):
        async with client.get_queue_sender("q/$deadletterqueue") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
    equal(await stage.count(DLQ), 0, "messages in the dead-letter queue")


@scenario
async def the_last_allowed_failure_moves_to_the_dead_letter_queue(stage):
    await stage.start(queues={"q": {"MaxDeliveryCount": 3}})
    client = stage.client()
    await send(client, "q", "bad")
    async with client.get_queue_receiver("q") as receiver:
        for count in range(3):
            message = await one(receiver)
            equal(message.delivery_count, count)
            await receiver.abandon_message(message)
        await nothing(receiver)
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead = await one(receiver)
        equal(body(dead), "bad")
        equal(dead.dead_letter_reason, "MaxDeliveryCountExceeded")
        equal("3" in dead.dead_letter_error_description, True, dead.dead_letter_error_description)


@scenario
async def a_deferred_message_comes_only_when_called(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    await send(client, "q", "later", "now")
    async with client.get_queue_receiver("q") as receiver:
        first = await one(receiver)
        await receiver.defer_message(first)
        second = await one(receiver)
        equal(body(second), "now")
        await receiver.complete_message(second)
        await nothing(receiver)
        (peeked,) = await receiver.peek_messages(5, sequence_number=1)
        equal(peeked.state.name, "DEFERRED")
        (deferred,) = await receiver.receive_deferred_messages(first.sequence_number)
        equal(body(deferred), "later")
        equal(deferred.sequence_number, first.sequence_number)
        equal(deferred.state.name, "DEFERRED")
        await receiver.complete_message(deferred)
        with refused(MessageNotFoundError):
            await receiver.receive_deferred_messages(first.sequence_number)
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def a_deferred_message_settles_in_each_way(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "abandon", "dead", "defer")
    async with client.get_queue_receiver("q") as receiver:
        messages = await collect(receiver, 3)
        for message in messages:
            await receiver.defer_message(message)
        numbers = [message.sequence_number for message in messages]
        abandoned, dead, deferred = await receiver.receive_deferred_messages(numbers)
        equal(bodies([abandoned, dead, deferred]), ["abandon", "dead", "defer"])
        await receiver.abandon_message(abandoned)
        await receiver.dead_letter_message(dead, reason="why", error_description="because")
        await receiver.defer_message(deferred)
        # An abandoned deferred message stays deferred.
        await nothing(receiver)
        still = await receiver.receive_deferred_messages([numbers[0], numbers[2]])
        equal(bodies(still), ["abandon", "defer"])
        for message in still:
            await receiver.complete_message(message)
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = await one(receiver)
        equal(body(message), "dead")
        equal(message.dead_letter_reason, "why")
        equal(message.dead_letter_error_description, "because")
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def deferred_messages_are_received_all_or_none(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        await receiver.defer_message(message)
        with refused(MessageNotFoundError):
            await receiver.receive_deferred_messages([message.sequence_number, 999])
        (deferred,) = await receiver.receive_deferred_messages([message.sequence_number])
        equal(body(deferred), "a")


@scenario
async def a_deferred_message_received_and_deleted_is_gone(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "a")
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        await receiver.defer_message(message)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with client.get_queue_receiver("q", receive_mode=mode) as receiver:
        (deferred,) = await receiver.receive_deferred_messages(message.sequence_number)
        equal(body(deferred), "a")
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def what_one_connection_received_another_cannot_settle_twice(stage):
    await stage.start(queues={"q": {}})
    one_client, other_client = stage.client(), stage.client()
    await send(one_client, "q", *(str(number) for number in range(60)))
    async with one_client.get_queue_receiver("q") as left, other_client.get_queue_receiver("q") as right:
        mine, theirs = await share(stage, "q", left, right)
    equal(sorted(mine + theirs, key=int), [str(number) for number in range(60)], "each message once")
    equal(await stage.count("q"), 0, "messages left")


@scenario(since=(7, 15), why="its close gives nothing back")
async def what_was_prefetched_is_given_back_uncounted_by_a_close(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", *(str(number) for number in range(10)))
    async with client.get_queue_receiver("q", prefetch_count=10) as receiver:
        await receiver.complete_message(await one(receiver))
    async with client.get_queue_receiver("q") as receiver:
        messages = await collect(receiver, 9)
        equal(bodies(messages), [str(number) for number in range(1, 10)])
        equal({message.delivery_count for message in messages}, {0}, "delivery counts")
