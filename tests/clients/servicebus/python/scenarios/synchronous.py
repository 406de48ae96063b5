"""The client without asyncio, which most services use: the same protocol through other code."""

import asyncio
import datetime

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageLockLostError, MessagingEntityNotFoundError

from checks import PATIENCE, bodies, body, equal, refused
from suite import scenario


async def with_client(stage, function, **options):
    """Runs `function(client)` in a thread; the stage is asked from the loop."""

    options = stage.transport() | options

    def run():
        with ServiceBusClient.from_connection_string(stage.connection_string(), **options) as client:
            return function(client)

    return await asyncio.to_thread(run)


@scenario
async def sync_sends_receives_and_settles_in_each_way(stage):
    await stage.start(queues={"q": {}})

    def work(client):
        with client.get_queue_sender("q") as sender:
            sender.send_messages([ServiceBusMessage(text) for text in ("complete", "abandon", "dead", "defer")])
        with client.get_queue_receiver("q") as receiver:
            messages = []
            while len(messages) < 4:
                messages += receiver.receive_messages(4 - len(messages), max_wait_time=PATIENCE)
            completed, abandoned, dead, deferred = messages
            receiver.complete_message(completed)
            receiver.abandon_message(abandoned)
            receiver.dead_letter_message(dead, reason="why", error_description="because")
            receiver.defer_message(deferred)
            (again,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
            equal((body(again), again.delivery_count), ("abandon", 1))
            receiver.renew_message_lock(again)
            receiver.complete_message(again)
            (called,) = receiver.receive_deferred_messages(deferred.sequence_number)
            receiver.complete_message(called)
        with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
            equal((body(message), message.dead_letter_reason), ("dead", "why"))
            receiver.complete_message(message)

    await with_client(stage, work)
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def sync_schedules_peeks_and_cancels(stage):
    await stage.start(queues={"q": {}})

    def work(client):
        when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
            numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], when)
            equal(bodies(receiver.peek_messages(5)), ["a", "b"])
            sender.cancel_scheduled_messages(numbers)
            equal(bodies(receiver.peek_messages(5, sequence_number=1)), [])

    await with_client(stage, work)
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def sync_sessions_have_their_order_and_state(stage):
    await stage.start(queues={"s": {"RequiresSession": True}})

    def work(client):
        with client.get_queue_sender("s") as sender:
            sender.send_messages([ServiceBusMessage(str(n), session_id="a") for n in range(3)])
        with client.get_queue_receiver("s", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE) as receiver:
            equal(receiver.session.session_id, "a")
            receiver.session.set_state(b"state")
            seen = []
            for message in receiver:
                seen.append(body(message))
                receiver.complete_message(message)
                if len(seen) == 3:
                    break
            equal(seen, ["0", "1", "2"])
            equal(receiver.session.get_state(), b"state")

    await with_client(stage, work)


@scenario(since=(7, 15), why="it does not wait for the outcome of a settlement")
async def sync_errors_are_the_same(stage):
    await stage.start(queues={"q": {"LockDuration": "PT5M"}})

    def unknown(client):
        with refused(MessagingEntityNotFoundError, "nowhere"):
            with client.get_queue_sender("nowhere") as sender:
                sender.send_messages(ServiceBusMessage("x"))

    await with_client(stage, unknown, retry_total=0)

    loop = asyncio.get_running_loop()

    def lost(client):
        with client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("q") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
            asyncio.run_coroutine_threadsafe(stage.advance(301), loop).result()
            with refused(MessageLockLostError):
                receiver.complete_message(message)

    await with_client(stage, lost, retry_total=0)
    equal(await stage.count("q"), 1, "messages left")
