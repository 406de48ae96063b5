"""aio-pika."""

import asyncio
import time

import aio_pika
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, DeliveryError
from stage import aio_eventually
from suite import scenario


async def connect(stage):
    return await aio_pika.connect(stage.url)


async def got(queue):
    async def look():
        return await queue.get(fail=False)

    return await aio_eventually(look, f"a message in {queue}")


def deaths(message):
    return [(death["queue"], death["reason"], death["count"]) for death in message.headers["x-death"]]


@scenario
async def aio_publishes_with_confirms_and_gets(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(stage.name("work"), durable=True)
        message = Message(b"body", headers={"n": 1, "t": {"a": [1, 2]}}, message_id="id", delivery_mode=DeliveryMode.PERSISTENT)
        confirmed = await channel.default_exchange.publish(message, queue.name)
        assert confirmed.name == "Basic.Ack"
        received = await got(queue)
        assert (received.body, received.message_id, received.headers) == (b"body", "id", {"n": 1, "t": {"a": [1, 2]}})
        await received.ack()


@scenario
async def aio_raises_for_unroutable(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel(on_return_raises=True)
        try:
            await channel.default_exchange.publish(Message(b"lost"), stage.name("nowhere"))
            raise AssertionError("it was routed")
        except aio_pika.exceptions.PublishError as error:
            assert error.message.delivery.reply_code == 312


@scenario
async def aio_is_nacked_by_a_full_queue(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel()
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        queue = await channel.declare_queue(stage.name("work"), durable=True, arguments=arguments)
        await channel.default_exchange.publish(Message(b"fits"), queue.name)
        try:
            await channel.default_exchange.publish(Message(b"too much"), queue.name)
            raise AssertionError("it was taken")
        except DeliveryError:
            pass


@scenario
async def aio_iterates_over_a_queue(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=3)
        queue = await channel.declare_queue(stage.name("work"), durable=True)
        for number in range(10):
            await channel.default_exchange.publish(Message(str(number).encode()), queue.name)
        taken = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    taken.append(int(message.body))
                if len(taken) == 10:
                    break
        assert taken == list(range(10))


@scenario
async def aio_dead_letters_what_its_handler_fails(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(stage.name("dlx"), ExchangeType.DIRECT, durable=True)
        dead = await channel.declare_queue(stage.name("dead"), durable=True)
        await dead.bind(exchange, "failed")
        arguments = {"x-dead-letter-exchange": exchange.name, "x-dead-letter-routing-key": "failed"}
        work = await channel.declare_queue(stage.name("work"), durable=True, arguments=arguments)

        async def handle(message):
            async with message.process(requeue=False):
                raise ValueError("bad")

        async def consume(message):
            try:
                await handle(message)
            except ValueError:
                pass

        await work.consume(consume)
        await channel.default_exchange.publish(Message(b"x"), work.name)
        message = await got(dead)
        assert deaths(message) == [(work.name, "rejected", 1)] and message.routing_key == "failed"


@scenario
async def aio_redelivers_what_is_requeued(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(stage.name("work"), durable=True)
        for body in (b"1", b"2"):
            await channel.default_exchange.publish(Message(body), queue.name)
        first = await got(queue)
        assert not first.redelivered
        await first.nack(requeue=True)
        # A classic queue puts it back where it was.
        again = await got(queue)
        assert again.body == b"1" and again.redelivered


@scenario
async def aio_waits_by_the_time_of_a_queue(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel()
        work = await channel.declare_queue(stage.name("work"), durable=True)
        arguments = {"x-message-ttl": 400, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work.name}
        delay = await channel.declare_queue(stage.name("delay"), durable=True, arguments=arguments)
        arrived = asyncio.Event()
        seen = []

        async def take(message):
            seen.append(message)
            await message.ack()
            arrived.set()

        await work.consume(take)
        began = time.monotonic()
        await channel.default_exchange.publish(Message(b"later"), delay.name)
        # On a busy machine the confirm may be read that late.
        assert not seen or time.monotonic() - began >= 0.4
        await stage.aio(stage.pass_time, 400)
        await asyncio.wait_for(arrived.wait(), 60)
        assert deaths(seen[0]) == [(delay.name, "expired", 1)]


@scenario
async def aio_rejects_several_at_once(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel()
        dead = await channel.declare_queue(stage.name("dead"), durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
        work = await channel.declare_queue(stage.name("work"), durable=True, arguments=arguments)
        for body in (b"1", b"2", b"3"):
            await channel.default_exchange.publish(Message(body), work.name)
        held = [await got(work) for _ in range(3)]
        await held[1].nack(multiple=True, requeue=False)
        assert [(await got(dead)).body for _ in range(2)] == [b"1", b"2"]
        await held[2].ack()


@scenario
async def aio_knows_what_is_missing_or_different(stage):
    async with await connect(stage) as connection:
        name = stage.name("work")
        try:
            await (await connection.channel()).get_queue(name)
            raise AssertionError("it is there")
        except ChannelNotFoundEntity as error:
            assert "NOT_FOUND - no queue" in str(error)
        await (await connection.channel()).declare_queue(name, durable=True)
        try:
            await (await connection.channel()).declare_queue(name, durable=True, arguments={"x-max-length": 1})
            raise AssertionError("it was declared")
        except ChannelPreconditionFailed as error:
            assert "inequivalent arg 'x-max-length'" in str(error)


@scenario
async def aio_commits_a_transaction(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(stage.name("work"), durable=True)
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"kept"), queue.name)
        try:
            async with channel.transaction():
                await channel.default_exchange.publish(Message(b"never"), queue.name)
                raise ValueError("no")
        except ValueError:
            pass
        assert (await got(queue)).body == b"kept"
        assert await queue.get(fail=False) is None


@scenario
async def aio_reconnects_by_itself_after_a_cut(stage):
    connection = await aio_pika.connect_robust(stage.url, reconnect_interval=0.05)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue(stage.name("work"), durable=True)
        seen = asyncio.Queue()

        async def take(message):
            await seen.put((message.body, message.redelivered))
            if message.redelivered:
                await message.ack()

        await queue.consume(take)
        await channel.default_exchange.publish(Message(b"x", delivery_mode=2), queue.name)
        assert await asyncio.wait_for(seen.get(), 60) == (b"x", False)
        await stage.aio(stage.cut)
        assert await asyncio.wait_for(seen.get(), 60) == (b"x", True)


@scenario
async def aio_binds_exchanges_to_exchanges(stage):
    async with await connect(stage) as connection:
        channel = await connection.channel()
        first = await channel.declare_exchange(stage.name("first"), ExchangeType.TOPIC, durable=True)
        second = await channel.declare_exchange(stage.name("second"), ExchangeType.FANOUT, durable=True)
        other = await channel.declare_exchange(stage.name("other"), ExchangeType.FANOUT, durable=True)
        arguments = {"alternate-exchange": other.name}
        front = await channel.declare_exchange(stage.name("front"), ExchangeType.DIRECT, durable=True, arguments=arguments)
        queue = await channel.declare_queue(stage.name("work"), durable=True)
        rest = await channel.declare_queue(stage.name("rest"), durable=True)
        await second.bind(first, "a.*")
        await queue.bind(second)
        await rest.bind(other)
        await first.publish(Message(b"through"), "a.b")
        await front.publish(Message(b"aside"), "nowhere")
        message = await got(queue)
        assert (message.body, message.exchange, message.routing_key) == (b"through", first.name, "a.b")
        message = await got(rest)
        assert (message.body, message.exchange) == (b"aside", front.name)


@scenario
async def aio_leaves_an_exclusive_queue_behind_nobody(stage):
    name = stage.name("mine")
    async with await connect(stage) as connection:
        channel = await connection.channel()
        await channel.declare_queue(name, exclusive=True)
    async with await connect(stage) as connection:
        async def gone():
            try:
                await (await connection.channel()).get_queue(name)
                return False
            except ChannelNotFoundEntity:
                return True
            except aio_pika.exceptions.ChannelLockedResource:
                return False

        await aio_eventually(gone, "the queue of the closed connection is gone")
