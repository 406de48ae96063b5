"""pika with its blocking connection."""

import pika
from pika.exceptions import ChannelClosedByBroker, ConnectionClosed, NackError, StreamLostError, UnroutableError
from stage import eventually
from suite import scenario

QUORUM = {"x-queue-type": "quorum"}


def connect(stage):
    return pika.BlockingConnection(pika.URLParameters(stage.url))


def channel_of(stage):
    return connect(stage).channel()


def refusal(action, *arguments, **options):
    """The code and text with which the broker closes the channel."""
    try:
        action(*arguments, **options)
    except ChannelClosedByBroker as closed:
        return closed.reply_code, closed.reply_text
    raise AssertionError("the broker refused nothing")


def got(channel, queue, auto_ack=False):
    """The next message of a queue, which must come."""

    def look():
        method, properties, body = channel.basic_get(queue, auto_ack)
        return method and (method, properties, body)

    return eventually(look, f"a message in {queue}")


@scenario
def pika_publishes_and_gets_with_every_property(stage):
    channel = channel_of(stage)
    work = stage.name("work")
    channel.queue_declare(work, durable=True)
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"text": "a", "number": 7, "yes": True, "nothing": None, "list": [1, "b"], "table": {"deep": {"er": 1}}},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="app",
        cluster_id="cluster",
    )
    channel.basic_publish("", work, b"body", sent)
    method, properties, body = got(channel, work)
    assert body == b"body" and not method.redelivered and method.exchange == "" and method.routing_key == work
    assert vars(properties) == vars(sent)
    channel.basic_ack(method.delivery_tag)
    channel.connection.close()


@scenario
def pika_consumes_with_a_prefetch(stage):
    channel = channel_of(stage)
    work = stage.name("work")
    channel.queue_declare(work, durable=True)
    for number in range(5):
        channel.basic_publish("", work, str(number).encode())
    channel.basic_qos(prefetch_count=2)
    taken = []
    for method, _, body in channel.consume(work, inactivity_timeout=30):
        taken.append(body.decode())
        if len(taken) == 2:
            # Two are out, and three wait.
            asked = channel_of(stage)
            assert asked.queue_declare(work, passive=True).method.message_count == 3
            asked.connection.close()
        if len(taken) > 1:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if len(taken) == 5:
            break
    assert taken == ["0", "1", "2", "3", "4"]
    channel.cancel()
    channel.connection.close()


@scenario
def pika_confirms_and_raises_for_unroutable(stage):
    channel = channel_of(stage)
    channel.confirm_delivery()
    work = stage.name("work")
    channel.queue_declare(work, durable=True)
    channel.basic_publish("", work, b"stored", mandatory=True)
    try:
        channel.basic_publish("", stage.name("nowhere"), b"lost", mandatory=True)
        raise AssertionError("it was routed")
    except UnroutableError as error:
        (returned,) = error.messages
        assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
        assert returned.body == b"lost"
    # Without mandatory nobody hears of it.
    channel.basic_publish("", stage.name("nowhere"), b"lost")
    channel.connection.close()


@scenario
def pika_is_nacked_by_a_full_queue(stage):
    channel = channel_of(stage)
    channel.confirm_delivery()
    work = stage.name("work")
    channel.queue_declare(work, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", work, b"fits")
    try:
        channel.basic_publish("", work, b"too much")
        raise AssertionError("it was taken")
    except NackError:
        pass
    assert got(channel, work)[2] == b"fits"
    channel.connection.close()


@scenario
def pika_sees_x_death_of_a_rejected_message(stage):
    channel = channel_of(stage)
    work, dead, exchange = stage.name("work"), stage.name("dead"), stage.name("dlx")
    channel.exchange_declare(exchange, "fanout", durable=True)
    channel.queue_declare(dead, durable=True)
    channel.queue_bind(dead, exchange)
    channel.queue_declare(work, durable=True, arguments={"x-dead-letter-exchange": exchange})
    channel.basic_publish("", work, b"bad", pika.BasicProperties(headers={"own": 1}))
    method, _, _ = got(channel, work)
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, properties, body = got(channel, dead)
    assert body == b"bad" and method.exchange == exchange and method.routing_key == work
    headers = properties.headers
    (death,) = headers["x-death"]
    assert death["time"] is not None
    assert {k: v for k, v in death.items() if k != "time"} == {
        "count": 1, "reason": "rejected", "queue": work, "exchange": "", "routing-keys": [work],
    }
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"], headers["x-first-death-exchange"]) == (work, "rejected", "")
    assert headers["own"] == 1 and ("x-last-death-reason" in headers) == stage.is_new
    channel.connection.close()


@scenario
def pika_waits_on_a_retry_ladder(stage):
    """work -reject-> delay -expires-> work: the counts go up."""
    channel = channel_of(stage)
    work, delay = stage.name("work"), stage.name("delay")
    channel.queue_declare(delay, durable=True, arguments={"x-message-ttl": 300, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work})
    channel.queue_declare(work, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": delay})
    channel.basic_publish("", work, b"again")
    for count in range(3):
        method, properties, _ = got(channel, work)
        deaths = (properties.headers or {}).get("x-death", [])
        assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == (
            [(delay, "expired", count), (work, "rejected", count)] if count else []
        )
        channel.basic_nack(method.delivery_tag, requeue=False)
        # A round trip: it was rejected before time passes.
        channel.queue_declare(delay, passive=True)
        stage.pass_time(300)
    assert got(channel, work)[2] == b"again"
    channel.connection.close()


@scenario
def pika_loses_expiration_on_death(stage):
    channel = channel_of(stage)
    # Confirmed: they are there before time passes.
    channel.confirm_delivery()
    work, dead = stage.name("work"), stage.name("dead")
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(work, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.basic_publish("", work, b"short", pika.BasicProperties(expiration="200"))
    stage.pass_time(250)
    _, properties, _ = got(channel, dead)
    (death,) = properties.headers["x-death"]
    assert properties.expiration is None
    assert (death["reason"], death["original-expiration"]) == ("expired", "200")
    channel.connection.close()


@scenario
def pika_expires_only_at_the_head(stage):
    channel = channel_of(stage)
    # Confirmed: they are there before time passes.
    channel.confirm_delivery()
    work = stage.name("work")
    channel.queue_declare(work, durable=True)
    channel.basic_publish("", work, b"long", pika.BasicProperties(expiration="60000"))
    channel.basic_publish("", work, b"short", pika.BasicProperties(expiration="100"))
    stage.pass_time(200)
    # Behind one that lives longer, it is still counted.
    assert channel.queue_declare(work, passive=True).method.message_count == 2
    assert got(channel, work, auto_ack=True)[2] == b"long"
    # It is not handed out, whoever looks first.
    assert channel.basic_get(work) == (None, None, None)
    channel.connection.close()


@scenario
def pika_drops_the_head_of_a_full_queue(stage):
    channel = channel_of(stage)
    work, dead = stage.name("work"), stage.name("dead")
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(work, durable=True, arguments={"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    for body in [b"1", b"2", b"3"]:
        channel.basic_publish("", work, body)
    _, properties, body = got(channel, dead)
    assert body == b"1" and properties.headers["x-death"][0]["reason"] == "maxlen"
    assert [got(channel, work, True)[2] for _ in range(2)] == [b"2", b"3"]
    channel.connection.close()


@scenario
def pika_hears_404_405_and_406(stage):
    connection = connect(stage)
    work = stage.name("work")
    connection.channel().queue_declare(work, durable=True)
    missing = stage.name("missing")
    assert refusal(connection.channel().queue_declare, missing, passive=True) == (404, f"NOT_FOUND - no queue '{missing}' in vhost '/'")
    code, text = refusal(connection.channel().queue_declare, work, durable=True, arguments={"x-message-ttl": 5})
    assert code == 406 and text.startswith(f"PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{work}' in vhost '/': received"), text
    code, text = refusal(connection.channel().queue_declare, "amq.mine", durable=True)
    assert code == 403 and text.startswith("ACCESS_REFUSED"), text
    exclusive = stage.name("exclusive")
    other = connect(stage)
    other.channel().queue_declare(exclusive, exclusive=True)
    code, text = refusal(connection.channel().queue_declare, exclusive, exclusive=True)
    assert code == 405 and text.startswith("RESOURCE_LOCKED"), text
    other.close()
    connection.close()


@scenario
def pika_closes_the_channel_for_an_unknown_tag(stage):
    connection = connect(stage)
    channel = connection.channel()
    work = stage.name("work")
    channel.queue_declare(work, durable=True)
    channel.basic_publish("", work, b"held")
    got(channel, work)

    def ack():
        channel.basic_ack(99)
        # The next call hears of it.
        channel.queue_declare(work, passive=True)

    assert refusal(ack) == (406, "PRECONDITION_FAILED - unknown delivery tag 99")
    # What it held is back.
    again = connection.channel()
    assert got(again, work)[0].redelivered
    connection.close()


@scenario
def pika_counts_deliveries_of_a_quorum_queue(stage):
    channel = channel_of(stage)
    work, dead = stage.name("work"), stage.name("dead")
    channel.queue_declare(dead, durable=True)
    arguments = {**QUORUM, "x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(work, durable=True, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", work, b"poison")
    counts = []
    for _ in range(3):
        method, properties, _ = got(channel, work)
        counts.append((properties.headers or {}).get("x-delivery-count"))
        channel.basic_reject(method.delivery_tag, requeue=True)
    assert counts == ([None, 1, 2] if stage.is_new else [0, 1, 2]), counts
    _, properties, _ = got(channel, dead)
    assert properties.headers["x-death"][0]["reason"] == "delivery_limit"
    channel.connection.close()


@scenario
def pika_commits_and_rolls_back(stage):
    channel = channel_of(stage)
    work, dead = stage.name("work"), stage.name("dead")
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(work, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.basic_publish("", work, b"first")
    transacted = channel.connection.channel()
    transacted.tx_select()
    method, _, _ = got(transacted, work)
    transacted.basic_nack(method.delivery_tag, requeue=False)
    transacted.basic_publish("", work, b"second")
    transacted.tx_rollback()
    # Neither happened, and the first is still held.
    counts = [channel.queue_declare(name, passive=True).method.message_count for name in (work, dead)]
    assert counts == [0, 0], counts
    transacted.basic_nack(method.delivery_tag, requeue=False)
    transacted.basic_publish("", work, b"second")
    transacted.tx_commit()
    assert got(channel, dead)[2] == b"first" and got(channel, work)[2] == b"second"
    channel.connection.close()


@scenario
def pika_declares_a_queue_with_a_name_of_the_broker(stage):
    channel = channel_of(stage)
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-") and len(name) > 20
    # The empty name is the last that was declared.
    channel.basic_publish("", name, b"x")
    assert channel.basic_get("")[2] == b"x"
    channel.connection.close()
    again = channel_of(stage)
    assert refusal(again.queue_declare, name, passive=True)[0] == 404
    again.connection.close()


@scenario
def pika_routes_by_topic_and_headers(stage):
    channel = channel_of(stage)
    topic, headers = stage.name("topic"), stage.name("headers")
    one, two = stage.name("one"), stage.name("two")
    channel.exchange_declare(topic, "topic", durable=True)
    channel.exchange_declare(headers, "headers", durable=True)
    for queue in (one, two):
        channel.queue_declare(queue, durable=True)
    channel.queue_bind(one, topic, "order.*")
    channel.queue_bind(two, topic, "#.failed")
    channel.queue_bind(one, headers, arguments={"x-match": "all", "color": "red", "size": 2})
    channel.queue_bind(two, headers, arguments={"x-match": "any", "color": "red", "size": 2})
    for key in ["order.new", "order.failed", "order.new.failed", "failed", "order"]:
        channel.basic_publish(topic, key, key.encode())
    for found in [{"color": "red", "size": 2}, {"color": "red"}, {"size": 3}]:
        channel.basic_publish(headers, "", str(found).encode(), pika.BasicProperties(headers=found))
    assert [got(channel, one, True)[2] for _ in range(3)] == [b"order.new", b"order.failed", b"{'color': 'red', 'size': 2}"]
    bodies = [got(channel, two, True)[2] for _ in range(5)]
    assert bodies == [b"order.failed", b"order.new.failed", b"failed", b"{'color': 'red', 'size': 2}", b"{'color': 'red'}"]
    channel.connection.close()


@scenario
def pika_copies_to_cc_and_bcc(stage):
    channel = channel_of(stage)
    one, two, three = stage.name("one"), stage.name("two"), stage.name("three")
    for queue in (one, two, three):
        channel.queue_declare(queue, durable=True)
    channel.basic_publish("", one, b"all", pika.BasicProperties(headers={"CC": [two], "BCC": [three]}))
    for queue in (one, two, three):
        method, properties, _ = got(channel, queue)
        assert method.routing_key == one and properties.headers == {"CC": [two]}, properties.headers
    channel.connection.close()


@scenario
def pika_is_told_that_its_consumer_is_cancelled(stage):
    connection = connect(stage)
    channel = connection.channel()
    work = stage.name("work")
    channel.queue_declare(work, durable=True)
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(work, lambda *_: None)
    connection.channel().queue_delete(work)
    eventually(lambda: connection.process_data_events(0.05) or cancelled, "basic.cancel")
    assert cancelled == [tag]
    connection.close()


@scenario
def pika_gets_an_answer_by_direct_reply(stage):
    connection = connect(stage)
    asking, answering = connection.channel(), connection.channel()
    work = stage.name("work")
    answering.queue_declare(work, durable=True)
    answers = []
    asking.basic_consume("amq.rabbitmq.reply-to", lambda _c, _m, _p, body: answers.append(body), auto_ack=True)
    asking.basic_publish("", work, b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    _, properties, _ = got(answering, work, True)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    answering.basic_publish("", properties.reply_to, b"answer")
    eventually(lambda: connection.process_data_events(0.05) or answers, "the answer")
    assert answers == [b"answer"]
    connection.close()


@scenario
def pika_finds_its_messages_after_a_cut(stage):
    channel = channel_of(stage)
    channel.confirm_delivery()
    work = stage.name("work")
    channel.queue_declare(work, durable=True)
    channel.basic_publish("", work, b"kept", pika.BasicProperties(delivery_mode=2))
    got(channel, work)
    stage.cut()
    try:
        channel.connection.process_data_events(30)
        raise AssertionError("the connection still stands")
    except (StreamLostError, ConnectionClosed):
        pass
    again = channel_of(stage)
    method, _, body = got(again, work)
    assert body == b"kept" and method.redelivered
    again.connection.close()


@scenario
def pika_receives_by_priority(stage):
    channel = channel_of(stage)
    work = stage.name("work")
    channel.queue_declare(work, durable=True, arguments={"x-max-priority": 5})
    for priority in [1, 5, None, 3, 9]:
        channel.basic_publish("", work, str(priority).encode(), pika.BasicProperties(priority=priority))
    assert [got(channel, work, True)[2] for _ in range(5)] == [b"5", b"9", b"3", b"1", b"None"]
    channel.connection.close()


@scenario
def pika_purges_and_deletes_if_unused(stage):
    connection = connect(stage)
    channel = connection.channel()
    work = stage.name("work")
    channel.queue_declare(work, durable=True)
    for _ in range(3):
        channel.basic_publish("", work, b"x")
    assert channel.queue_purge(work).method.message_count == 3
    channel.basic_publish("", work, b"x")
    code, text = refusal(connection.channel().queue_delete, work, if_empty=True)
    assert (code, text) == (406, f"PRECONDITION_FAILED - queue '{work}' in vhost '/' not empty"), text
    channel.basic_consume(work, lambda *_: None)
    code, text = refusal(connection.channel().queue_delete, work, if_unused=True)
    assert (code, text) == (406, f"PRECONDITION_FAILED - queue '{work}' in vhost '/' in use"), text
    connection.close()
