"""Topics, rules, and forwarding from one entity to another."""

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from checks import bodies, body, collect, equal, nothing, one, send
from suite import scenario


async def publish(client, topic, *messages):
    async with client.get_topic_sender(topic) as sender:
        for message in messages:
            await sender.send_messages(message)


def correlation(**filter):
    return {"FilterType": "Correlation", "CorrelationFilter": filter}


def sql(expression):
    return {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}


@scenario
async def each_subscription_gets_its_own_copy(stage):
    await stage.start(topics={"t": {"subscriptions": {"one": {}, "two": {}}}})
    client = stage.client()
    await publish(client, "t", ServiceBusMessage("x", message_id="m"))
    async with client.get_subscription_receiver("t", "one") as receiver:
        message = await one(receiver)
        equal((body(message), message.message_id), ("x", "m"))
        await receiver.complete_message(message)
        await nothing(receiver)
    async with client.get_subscription_receiver("t", "two") as receiver:
        equal(body(await one(receiver)), "x")


@scenario
async def a_subscription_has_its_own_dead_letter_queue(stage):
    await stage.start(topics={"t": {"subscriptions": {"one": {"MaxDeliveryCount": 1}, "two": {}}}})
    client = stage.client()
    await publish(client, "t", ServiceBusMessage("x"))
    async with client.get_subscription_receiver("t", "one") as receiver:
        await receiver.abandon_message(await one(receiver))
        await nothing(receiver)
    dead_letters = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}
    async with client.get_subscription_receiver("t", "one", **dead_letters) as receiver:
        dead = await one(receiver)
        equal((body(dead), dead.dead_letter_reason), ("x", "MaxDeliveryCountExceeded"))
    async with client.get_subscription_receiver("t", "two", **dead_letters) as receiver:
        await nothing(receiver)


@scenario
async def correlation_rules_choose(stage):
    await stage.start(
        topics={
            "t": {
                "subscriptions": {
                    "by-label": {"rules": {"r": correlation(Label="red")}},
                    "by-property": {"rules": {"r": correlation(Properties={"tenant": "acme"})}},
                    "by-both": {"rules": {"r": correlation(CorrelationId="c", Properties={"tenant": "acme"})}},
                }
            }
        }
    )
    client = stage.client()
    await publish(
        client,
        "t",
        ServiceBusMessage("red", subject="red"),
        ServiceBusMessage("acme", subject="blue", application_properties={"tenant": "acme"}),
        ServiceBusMessage("both", correlation_id="c", application_properties={"tenant": "acme"}),
        ServiceBusMessage("neither", subject="blue"),
    )
    for name, expected in {"by-label": ["red"], "by-property": ["acme", "both"], "by-both": ["both"]}.items():
        async with client.get_subscription_receiver("t", name) as receiver:
            equal(bodies(await collect(receiver, len(expected))), expected, name)
            await nothing(receiver)


@scenario
async def sql_rules_choose(stage):
    rules = {
        "compare": ("price > 10 AND price <= 20", ["15"]),
        "in": ("color IN ('red', 'green')", ["15", "30"]),
        "like": ("sys.Label LIKE 'order-%'", ["5", "15"]),
        "null": ("color IS NULL", ["5"]),
        "exists": ("EXISTS(color) AND NOT (color = 'red')", ["30"]),
        "or": ("price < 6 OR sys.MessageId = 'm-30'", ["5", "30"]),
        "math": ("price * 2 = 30", ["15"]),
    }
    await stage.start(
        topics={"t": {"subscriptions": {name: {"rules": {"r": sql(text)}} for name, (text, _) in rules.items()}}}
    )
    client = stage.client()
    await publish(
        client,
        "t",
        ServiceBusMessage("5", message_id="m-5", subject="order-new", application_properties={"price": 5}),
        ServiceBusMessage("15", subject="order-paid", application_properties={"price": 15, "color": "red"}),
        ServiceBusMessage("30", message_id="m-30", application_properties={"price": 30.0, "color": "green"}),
    )
    for name, (_, expected) in rules.items():
        async with client.get_subscription_receiver("t", name) as receiver:
            equal(bodies(await collect(receiver, len(expected))), expected, name)
    for name, (_, expected) in rules.items():
        equal(await stage.count(f"t/subscriptions/{name}"), len(expected), f"messages of {name}")


@scenario
async def a_queue_forwards_what_it_gets(stage):
    await stage.start(queues={"end": {}, "middle": {"ForwardTo": "end"}, "start": {"ForwardTo": "middle"}})
    client = stage.client()
    await send(client, "start", "x", message_id="m")
    async with client.get_queue_receiver("end") as receiver:
        message = await one(receiver)
        equal((body(message), message.message_id), ("x", "m"))
    equal(await stage.count("start"), 0, "messages left")
    equal(await stage.count("middle"), 0, "messages left")


@scenario
async def a_subscription_forwards_to_a_queue(stage):
    await stage.start(queues={"end": {}}, topics={"t": {"subscriptions": {"one": {"ForwardTo": "end"}}}})
    client = stage.client()
    await publish(client, "t", ServiceBusMessage("x"))
    async with client.get_queue_receiver("end") as receiver:
        equal(body(await one(receiver)), "x")


@scenario
async def dead_letters_are_forwarded_with_their_reason(stage):
    await stage.start(queues={"graves": {}, "q": {"ForwardDeadLetteredMessagesTo": "graves"}})
    client = stage.client()
    await send(client, "q", "x")
    async with client.get_queue_receiver("q") as receiver:
        await receiver.dead_letter_message(await one(receiver), reason="why", error_description="because")
    async with client.get_queue_receiver("graves") as receiver:
        dead = await one(receiver)
        equal(body(dead), "x")
        equal(dead.dead_letter_reason, "why")
        equal(dead.dead_letter_error_description, "because")
        equal(dead.dead_letter_source, "q")
    equal(await stage.count("q/$deadletterqueue"), 0, "dead letters left")


@scenario
async def entity_names_know_no_case(stage):
    await stage.start(queues={"Orders": {}}, topics={"News": {"subscriptions": {"Mine": {}}}})
    client = stage.client()
    await send(client, "oRDERS", "x")
    async with client.get_queue_receiver("orders") as receiver:
        equal(body(await one(receiver)), "x")
    await publish(client, "NEWS", ServiceBusMessage("y"))
    async with client.get_subscription_receiver("news", "mine") as receiver:
        equal(body(await one(receiver)), "y")
