"""The Rust side of the suite: starts an emulator for a scenario, moves its clock, breaks it on purpose.

One TCP connection for one emulator; each request is a line of JSON and has one line of answer. An emulator ends with its
connection. `../../src/servicebus.rs` answers.
"""

import asyncio
import importlib.metadata
import json
import logging
import os

from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

#: How many scenarios run at once, and how long one may take before it counts as hanging.
AT_ONCE = 16
LONGEST = 600

# The clients log every refusal that a scenario asks for.
logging.getLogger("azure").setLevel(logging.CRITICAL)

KEY = "RootManageSharedAccessKey"

#: Of the client.
VERSION = tuple(int(part) for part in importlib.metadata.version("azure-servicebus").split("."))

#: Clients before that know neither plain TCP nor a port of one's own for AMQP: they connect by WebSockets within TLS.
KNOWS_EMULATORS = VERSION >= (7, 14)

#: Where a scenario says nothing of locks, they hold for as long as there are: many scenarios at once take their time.
LASTING = {"LockDuration": "PT5M"}


class Stage:
    """One emulator, with one scenario on it."""

    VERSION = VERSION

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()
        self._clients = []
        self.port = 0
        self.certificate = None

    @classmethod
    async def open(cls):
        host, port = os.environ["REDRIVE_STAGE"].rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    async def close(self):
        await asyncio.gather(*(client.close() for client in self._clients), return_exceptions=True)
        self._writer.close()

    def abandon(self):
        """After a failure: a client may hang in its closing."""
        self._writer.close()

    async def ask(self, **request):
        async with self._turn:
            self._writer.write(json.dumps(request).encode() + b"\n")
            await self._writer.drain()
            line = await self._reader.readline()
        answer = json.loads(line or b'{"error": "the stage is gone"}')
        if "error" in answer:
            raise RuntimeError(f"the stage cannot {request}: {answer['error']}")
        return answer

    # -- what there is --------------------------------------------------------------------------------------------------

    async def start(self, *, queues=None, topics=None, **plan):
        """Starts the emulator with these entities: `{"name": {"LockDuration": "PT30S", ...}}`, as in Config.json.

        Plans: `key="..."`, `stored=True`, `idle_links=seconds`, `tls=True`, `websockets=True`.
        """
        config = _config(queues or {}, topics or {})
        if not KNOWS_EMULATORS:
            plan |= {"tls": True, "websockets": True}
        answer = await self.ask(do="start", config=config, **plan)
        self.port = answer["port"]
        self.certificate = answer["certificate"]

    def connection_string(self, key="SAS_KEY_VALUE", *, tls=not KNOWS_EMULATORS):
        plain = "" if tls else "UseDevelopmentEmulator=true;"
        return f"Endpoint=sb://localhost:{self.port};SharedAccessKeyName={KEY};SharedAccessKey={key};{plain}"

    def client(self, key="SAS_KEY_VALUE", **options):
        """A client of its own connection; closed with the stage."""
        options = self.transport() | options
        client = ServiceBusClient.from_connection_string(self.connection_string(key), **options)
        self._clients.append(client)
        return client

    def transport(self):
        """The options with which a client of this version reaches the emulator, beside the connection string."""
        return {} if KNOWS_EMULATORS else self.websockets(connection_verify=self.certificate)

    def websockets(self, **more):
        """Without an endpoint of its own the client takes the port of Azure: 443."""
        endpoint = f"sb://localhost:{self.port}"
        return {"custom_endpoint_address": endpoint, "transport_type": TransportType.AmqpOverWebsocket, **more}

    # -- time, and faults -----------------------------------------------------------------------------------------------

    async def advance(self, seconds):
        await self.ask(do="advance", seconds=seconds)

    async def expire_locks(self, entity):
        """Ends every lock on messages of this entity now; how many there were."""
        return (await self.ask(do="expire-locks", entity=entity))["count"]

    async def expire_session(self, entity, session):
        await self.ask(do="expire-session", entity=entity, session=session)

    async def drop_connections(self):
        await self.ask(do="drop-connections")

    async def detach(self, entity):
        """Detaches all links to this entity by amqp:link:detach-forced."""
        await self.ask(do="detach", entity=entity)

    async def busy(self, times):
        """The next `times` requests or sends are answered with server-busy."""
        await self.ask(do="busy", times=times)

    async def lose_replies(self, times):
        """The next `times` answers to sends, settlements or requests are not sent, though all was done."""
        await self.ask(do="lose-replies", times=times)

    async def refuse_tokens(self, times):
        await self.ask(do="refuse-tokens", times=times)

    async def restart(self):
        """Crashes the emulator, and starts it again on the same port with what it had stored."""
        await self.ask(do="restart")

    async def count(self, entity):
        """How many messages the entity holds, in whatever state."""
        return (await self.ask(do="count", entity=entity))["count"]

    async def waiting(self, entity):
        """How many receivers wait for a message, or for a session, of this entity."""
        return (await self.ask(do="waiting", entity=entity))["count"]


def _config(queues, topics):
    return {
        "UserConfig": {
            "Namespaces": [
                {
                    "Name": "sbemulatorns",
                    "Queues": [{"Name": name, "Properties": LASTING | properties} for name, properties in queues.items()],
                    "Topics": [_topic(name, dict(topic)) for name, topic in topics.items()],
                }
            ],
            "Logging": {"Type": "Console"},
        }
    }


def _topic(name, topic):
    subscriptions = topic.pop("subscriptions", {})
    return {
        "Name": name,
        "Properties": topic,
        "Subscriptions": [_subscription(sub, dict(properties)) for sub, properties in subscriptions.items()],
    }


def _subscription(name, properties):
    rules = properties.pop("rules", {})
    return {
        "Name": name,
        "Properties": LASTING | properties,
        "Rules": [{"Name": rule, "Properties": filter} for rule, filter in rules.items()],
    }
