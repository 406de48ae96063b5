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


def sql(expression, action=None):
    rule = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
    return rule if action is None else {**rule, "Action": {"SqlExpression": action}}


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
async def actions_change_the_copy_of_their_rule(stage):
    action = "SET sys.Label = 'dear'; SET doubled = price * 2; SET color = 'none'; REMOVE secret"
    rules = {"all": sql("1 = 1"), "dear": sql("price > 10", action)}
    await stage.start(topics={"t": {"subscriptions": {"one": {"rules": rules}, "other": {}}}})
    client = stage.client()
    properties = {"price": 15, "color": "red", "secret": "x"}
    await publish(client, "t", ServiceBusMessage("m", subject="order", application_properties=properties))

    def told(message):
        texts = {key.decode(): value for key, value in message.application_properties.items()}
        return message.subject, {key: v.decode() if isinstance(v, bytes) else v for key, v in texts.items()}

    async with client.get_subscription_receiver("t", "one") as receiver:
        copies = sorted([told(message) for message in await collect(receiver, 2)], key=lambda copy: copy[0])
        changed = {"price": 15, "color": "none", "doubled": 30, "RuleName": "dear"}
        equal(copies, [("dear", changed), ("order", properties)])
    async with client.get_subscription_receiver("t", "other") as receiver:
        equal(told(await one(receiver)), ("order", properties))


@scenario
async def what_was_handed_on_too_often_rests_in_the_transfer_dead_letter_queue(stage):
    # Four hops are the most; the fifth is from 4 to 5.
    onward = {str(number): {"ForwardTo": str(number + 1)} for number in range(5)}
    await stage.start(queues={**onward, "5": {}})
    client = stage.client()
    await send(client, "0", "x", message_id="m")
    async with client.get_queue_receiver("4", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER) as receiver:
        dead = await one(receiver)
        equal((body(dead), dead.message_id), ("x", "m"))
        equal(dead.dead_letter_reason, "MaxTransferHopCountExceeded")
        await receiver.complete_message(dead)
    equal(await stage.count("4/$Transfer/$DeadLetterQueue"), 0, "messages left")
    equal(await stage.count("5"), 0, "messages handed on")


@scenario
async def what_a_full_queue_does_not_take_rests_in_the_transfer_dead_letter_queue(stage):
    await stage.start(queues={"end": {"MaxSizeInMegabytes": 1}, "q": {"ForwardTo": "end"}})
    client = stage.client()
    sent = 0
    while await stage.count("q/$Transfer/$DeadLetterQueue") == 0:
        equal(sent < 12, True, "1 MB is full after 12 messages of 200 KB")
        await send(client, "q", "x" * 200_000, message_id=str(sent))
        sent += 1
    async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER) as receiver:
        dead = await one(receiver)
        equal(dead.message_id, str(sent - 1), "the last one")
        equal("size limit" in dead.dead_letter_error_description, True, dead.dead_letter_error_description)
        # Sent again once there is room.
        async with client.get_queue_receiver("end") as end:
            await end.complete_message(await one(end))
        await send(client, "end", body(dead), message_id=dead.message_id)
        await receiver.complete_message(dead)
    equal(await stage.count("end"), sent - 1, "messages of the end")
    equal(await stage.count("q/$Transfer/$DeadLetterQueue"), 0, "messages left")


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
