"""What goes in comes out: properties, bodies, batches, sizes."""

import datetime
import uuid

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import MessageSizeExceededError

from checks import PATIENCE, QUIET, body, bodies, collect, equal, nothing, one, refused, send
from suite import scenario


@scenario
async def every_property_comes_back(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    number = uuid.uuid4()
    async with client.get_queue_sender("q") as sender:
        await sender.send_messages(
            ServiceBusMessage(
                "text",
                message_id="m-1",
                content_type="text/plain",
                correlation_id="c-1",
                subject="label",
                to="somewhere",
                reply_to="back",
                reply_to_session_id="back-session",
                partition_key="part",
                time_to_live=datetime.timedelta(minutes=7),
                application_properties={
                    "text": "ü ✓ 𝄞",
                    "int": 7,
                    "negative": -3,
                    "float": 0.25,
                    "yes": True,
                    "uuid": number,
                    "when": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc),
                    "none": None,
                },
            )
        )
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        equal(body(message), "text")
        equal(message.message_id, "m-1")
        equal(message.content_type, "text/plain")
        equal(message.correlation_id, "c-1")
        equal(message.subject, "label")
        equal(message.to, "somewhere")
        equal(message.reply_to, "back")
        equal(message.reply_to_session_id, "back-session")
        equal(message.partition_key, "part")
        equal(message.time_to_live, datetime.timedelta(minutes=7))
        equal(message.delivery_count, 0)
        equal(message.state.name, "ACTIVE")
        equal(message.sequence_number, 1)
        equal(message.enqueued_sequence_number is not None, True, "has an enqueued sequence number")
        age = datetime.datetime.now(datetime.timezone.utc) - message.enqueued_time_utc
        equal(abs(age) < datetime.timedelta(minutes=15), True, f"enqueued now, not {age} ago")
        equal(message.locked_until_utc > message.enqueued_time_utc, True, "locked for a while")
        properties = message.application_properties
        equal(properties[b"text"].decode(), "ü ✓ 𝄞")
        equal(properties[b"int"], 7)
        equal(properties[b"negative"], -3)
        equal(properties[b"float"], 0.25)
        equal(properties[b"yes"], True)
        equal(properties[b"uuid"], number)
        equal(properties[b"when"], 1767323045000)
        equal(properties[b"none"], None)
        await receiver.complete_message(message)
        await nothing(receiver)


@scenario
async def bodies_of_each_amqp_kind_pass_through(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    value = {b"map": [1, 2.5, b"three"], b"nested": {b"x": None}}
    async with client.get_queue_sender("q") as sender:
        await sender.send_messages(AmqpAnnotatedMessage(data_body=[b"one", b"two"]))
        await sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[b"a", 1], [b"b", 2]]))
        await sender.send_messages(AmqpAnnotatedMessage(value_body=value))
        await sender.send_messages(ServiceBusMessage(b""))
    async with client.get_queue_receiver("q", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        data, sequence, single, empty = await collect(receiver, 4)
        equal(data.body_type, AmqpMessageBodyType.DATA)
        equal(list(data.body), [b"one", b"two"])
        equal(sequence.body_type, AmqpMessageBodyType.SEQUENCE)
        equal(list(sequence.body), [[b"a", 1], [b"b", 2]])
        equal(single.body_type, AmqpMessageBodyType.VALUE)
        equal(single.body, value)
        equal(b"".join(empty.body), b"")


@scenario
async def annotations_header_and_footer_pass_through(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    async with client.get_queue_sender("q") as sender:
        await sender.send_messages(
            AmqpAnnotatedMessage(
                data_body=b"x",
                annotations={"x-mine": "kept"},
                footer={"check": "sum"},
                header={"durable": True, "priority": 7},
            )
        )
    async with client.get_queue_receiver("q") as receiver:
        raw = (await one(receiver)).raw_amqp_message
        equal(raw.annotations[b"x-mine"], b"kept")
        equal(raw.footer[b"check"], b"sum")
        equal(raw.header.durable, True)
        equal(raw.header.priority, 7)
        equal(raw.header.delivery_count, 0)


@scenario
async def a_batch_of_a_thousand_keeps_its_order(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    async with client.get_queue_sender("q") as sender:
        batch = await sender.create_message_batch()
        for number in range(1000):
            batch.add_message(ServiceBusMessage(str(number), message_id=f"m-{number}"))
        await sender.send_messages(batch)
    equal(await stage.count("q"), 1000, "messages stored")
    async with client.get_queue_receiver("q", prefetch_count=500) as receiver:
        messages = await collect(receiver, 1000)
        equal(bodies(messages), [str(number) for number in range(1000)])
        equal([message.sequence_number for message in messages], list(range(1, 1001)))
        for message in messages[:50]:
            await receiver.complete_message(message)
    equal(await stage.count("q"), 950, "messages left")


@scenario
async def a_list_is_sent_as_one_batch(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    async with client.get_queue_sender("q") as sender:
        await sender.send_messages([ServiceBusMessage(f"{n}", application_properties={"n": n}) for n in range(5)])
    async with client.get_queue_receiver("q") as receiver:
        messages = await collect(receiver, 5)
        equal(bodies(messages), ["0", "1", "2", "3", "4"])
        equal([message.application_properties[b"n"] for message in messages], [0, 1, 2, 3, 4])


@scenario
async def a_message_of_many_frames_arrives_whole(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    text = "0123456789abcdef" * (200 * 1024 // 16)
    await send(client, "q", text)
    async with client.get_queue_receiver("q") as receiver:
        message = await one(receiver)
        equal(body(message) == text, True, "200 KB came back unchanged")
        await receiver.complete_message(message)
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def a_message_above_the_limit_is_refused(stage):
    await stage.start(queues={"q": {}})
    client = stage.client(retry_total=0)
    async with client.get_queue_sender("q") as sender:
        with refused(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage("x" * (300 * 1024)))
        with refused(MessageSizeExceededError):
            await sender.send_messages([ServiceBusMessage("x" * 1000) for _ in range(300)])
        await sender.send_messages(ServiceBusMessage("small"))
    async with client.get_queue_receiver("q") as receiver:
        equal(body(await one(receiver)), "small")


@scenario
async def a_megabyte_passes_where_it_is_allowed(stage):
    await stage.start(queues={"large": {"MaxMessageSizeInKilobytes": 2048}})
    client = stage.client()
    text = "0123456789abcdef" * (1024 * 1024 // 16)
    await send(client, "large", text)
    async with client.get_queue_receiver("large") as receiver:
        message = await one(receiver)
        equal(body(message) == text, True, "1 MB came back unchanged")
        await receiver.complete_message(message)
    equal(await stage.count("large"), 0, "messages left")


@scenario
async def receive_and_delete_removes_at_once(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "a", "b")
    async with client.get_queue_receiver("q", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        first = await one(receiver)
        equal(body(first), "a")
        equal(first.locked_until_utc, None, "locked until")
        equal(await stage.count("q"), 1, "messages left")
        equal(body(await one(receiver)), "b")
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def an_iterator_goes_on_as_messages_come(stage):
    await stage.start(queues={"q": {}})
    client = stage.client()
    await send(client, "q", "0")
    seen = []
    async with client.get_queue_sender("q") as sender, client.get_queue_receiver("q", max_wait_time=PATIENCE) as receiver:
        async for message in receiver:
            seen.append(body(message))
            await receiver.complete_message(message)
            if len(seen) == 5:
                break
            await sender.send_messages(ServiceBusMessage(str(len(seen))))
    equal(seen, ["0", "1", "2", "3", "4"])
    # Where nothing comes it ends.
    async with client.get_queue_receiver("q", max_wait_time=QUIET) as receiver:
        equal([body(message) async for message in receiver], [])
    equal(await stage.count("q"), 0, "messages left")
