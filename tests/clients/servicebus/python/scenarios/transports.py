"""AMQP over WebSockets, also within TLS. By the client without asyncio, which needs fewer packages for them.

TLS alone cannot be seen here: this client knows no port for it but 5671, and takes an endpoint of one's own for a WebSocket.
"""

import asyncio

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from checks import PATIENCE, body, equal
from suite import scenario


def sends_and_receives(connection_string, text, **options):
    with ServiceBusClient.from_connection_string(connection_string, **options) as client:
        with client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage(text))
        with client.get_queue_receiver("q") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
            receiver.complete_message(message)
            return body(message)


@scenario(since=(7, 14), why="it speaks no WebSockets without TLS")
async def by_websockets(stage):
    await stage.start(queues={"q": {}}, websockets=True)
    secret, long = stage.connection_string(), "0123456789abcdef" * 10_000
    came = await asyncio.to_thread(sends_and_receives, secret, long, **stage.websockets())
    equal(came == long, True, "160 KB came back unchanged")
    # Beside it, on the same port, plain TCP goes on.
    equal(await asyncio.to_thread(sends_and_receives, secret, "y"), "y")
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def by_websockets_in_tls(stage):
    await stage.start(queues={"q": {}}, tls=True, websockets=True)
    secret, trusting = stage.connection_string(tls=True), stage.websockets(connection_verify=stage.certificate)
    equal(await asyncio.to_thread(sends_and_receives, secret, "x", **trusting), "x")
    equal(await stage.count("q"), 0, "messages left")


@scenario
async def by_websockets_in_tls_only_who_trusts_the_certificate(stage):
    await stage.start(queues={"q": {}}, tls=True, websockets=True)
    # There is one try: what it is told must not be that a second was too short.
    doubting = stage.websockets(retry_total=0, socket_timeout=PATIENCE)
    secret = stage.connection_string(tls=True)
    try:
        await asyncio.to_thread(sends_and_receives, secret, "x", **doubting)
    except ServiceBusError as refused:
        equal("certificate" in str(refused).lower(), True, str(refused))
    else:
        raise AssertionError("a certificate that nobody signed was trusted")
    equal(await stage.count("q"), 0, "messages")
