"""What the clients are told when something is not there, not allowed, or too much."""

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from checks import PATIENCE, bodies, body, collect, equal, one, refused, send
from suite import scenario


@scenario
async def an_unknown_queue_is_not_found(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    with refused(MessagingEntityNotFoundError, "nowhere"):
        await send(client, "nowhere", "x")
    with refused(MessagingEntityNotFoundError, "nowhere"):
        async with client.get_queue_receiver("nowhere") as receiver:
            await receiver.receive_messages(max_wait_time=PATIENCE)
    # The connection is none the worse for it.
    await send(client, "q", "x")
    equal(await stage.count("q"), 1, "messages")


@scenario
async def an_unknown_subscription_is_not_found(stage):
    await stage.start(topics={"t": {"subscriptions": {"one": {}}}})
    client = stage.client(retry_total=0)
    with refused(MessagingEntityNotFoundError, "other"):
        async with client.get_subscription_receiver("t", "other") as receiver:
            await receiver.receive_messages(max_wait_time=PATIENCE)


@scenario
async def a_topic_is_not_received_from(stage):
    await stage.start(topics={"t": {"subscriptions": {"one": {}}}})
    client = stage.client(retry_total=0)
    with refused(ServiceBusError):
        async with client.get_queue_receiver("t") as receiver:
            await receiver.receive_messages(max_wait_time=PATIENCE)


@scenario
async def a_full_queue_takes_no_more(stage):
    await stage.start(queues={"q": {"MaxSizeInMegabytes": 1}})
    client = stage.client(retry_total=0)
    async with client.get_queue_sender("q") as sender:
        sent = 0
        with refused(ServiceBusQuotaExceededError):
            for _ in range(12):
                await sender.send_messages(ServiceBusMessage("x" * 200_000))
                sent += 1
        equal(4 <= sent <= 6, True, f"{sent} messages of 200 KB in 1 MB")
        async with client.get_queue_receiver("q") as receiver:
            await receiver.complete_message(await one(receiver))
        # Room was made.
        await sender.send_messages(ServiceBusMessage("x" * 150_000))
    equal(await stage.count("q"), sent, "messages")


@scenario(since=(7, 14), why="it tells a refused token as a lost connection")
async def a_wrong_key_is_refused(stage):
    await stage.start(queues={"q": {}}, key="the right one")
    client = stage.client(key="another", retry_total=0)
    with refused(ServiceBusAuthenticationError):
        await send(client, "q", "x")
    await send(stage.client(key="the right one"), "q", "x")
    equal(await stage.count("q"), 1, "messages")


@scenario
async def a_busy_server_is_an_error_without_a_second_try(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    async with client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("a"))
        await stage.busy(1)
        with refused(ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage("b"))
        await sender.send_messages(ServiceBusMessage("c"))
    async with client.get_queue_receiver("q") as receiver:
        equal(bodies(await collect(receiver, 2)), ["a", "c"])


@scenario
async def a_busy_server_is_tried_again(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=3, retry_backoff_factor=0.1)
    async with client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("a"))
        await stage.busy(2)
        await sender.send_messages(ServiceBusMessage("b"))
    async with client.get_queue_receiver("q") as receiver:
        equal(bodies(await collect(receiver, 2)), ["a", "b"])


@scenario(since=(7, 14), why="it tells a refused token as a lost connection")
async def a_refused_token_is_an_authentication_error(stage):
    await stage.start(queues={"q": {}})
    await stage.refuse_tokens(1)
    with refused(ServiceBusAuthenticationError):
        await send(stage.client(retry_total=0), "q", "x")
    await send(stage.client(retry_total=0), "q", "y")
    async with stage.client().get_queue_receiver("q") as receiver:
        equal(body(await one(receiver)), "y")
