// The Rust side of the suite: starts an emulator for a scenario, moves its clock, breaks it on purpose.
// An emulator ends with its connection.

import { readFileSync } from "node:fs";
import WebSocket from "ws";
import { Connection } from "./connection.mjs";

// The version of the client: each is a package of its own.
const PACKAGE = process.env.REDRIVE_SERVICEBUS_CLIENT;
const { ServiceBusClient } = await import(PACKAGE);
const manifest = JSON.parse(readFileSync(new URL(`node_modules/${PACKAGE}/package.json`, import.meta.url)));
const VERSION = manifest.version.split(".").map(Number);

// Clients before that know no plain TCP: they connect by WebSockets.
const KNOWS_EMULATORS = !isBefore([7, 9, 1]);

function isBefore(since) {
  const at = since.findIndex((part, nth) => part !== VERSION[nth]);
  return at >= 0 && VERSION[at] < since[at];
}

const KEY_NAME = "RootManageSharedAccessKey";

export class Stage extends Connection {
  // Whether the client is older than this.
  static isBefore = isBefore;

  #clients = [];
  #port = 0;

  static async open() {
    const stage = new Stage();
    await stage.open();
    return stage;
  }

  async close() {
    await Promise.allSettled(this.#clients.map((client) => client.close()));
    this.abandon();
  }

  // Starts the emulator with these entities: `{ name: { LockDuration: "PT30S", … } }`, as in Config.json.
  // Plans: `key: "…"`, `stored: true`, `idle_links: seconds`, `tls: true`, `websockets: true`.
  async start({ queues = {}, topics = {}, ...plan }) {
    if (!KNOWS_EMULATORS) plan.websockets = true;
    const { port, certificate } = await this.ask({ do: "start", config: config(queues, topics), ...plan });
    this.#port = port;
    this.certificate = certificate;
  }

  // A client of its own connection; closed with the stage.
  client({ key = "SAS_KEY_VALUE", tls = false, webSocketOptions, ...retryOptions } = {}) {
    const client = new ServiceBusClient(
      `Endpoint=sb://localhost:${this.#port};SharedAccessKeyName=${KEY_NAME};` +
        `SharedAccessKey=${key};${tls ? "" : "UseDevelopmentEmulator=true;"}`,
      { webSocketOptions: webSocketOptions ?? this.#plainWebSockets(), retryOptions: { maxRetries: 0, timeoutInMs: 20_000, retryDelayInMs: 100, ...retryOptions } },
    );
    this.#clients.push(client);
    return client;
  }

  // An older client always says TLS and a port of Azure; the connection it gets is one to the emulator, without TLS.
  #plainWebSockets() {
    if (KNOWS_EMULATORS) return undefined;
    const url = `ws://localhost:${this.#port}/$servicebus/websocket`;
    return { webSocket: class extends WebSocket { constructor(_, protocols, options) { super(url, protocols, options); } } };
  }

  advance = (seconds) => this.ask({ do: "advance", seconds });
  expireLocks = async (entity) => (await this.ask({ do: "expire-locks", entity })).count;
  expireSession = (entity, session) => this.ask({ do: "expire-session", entity, session });
  dropConnections = () => this.ask({ do: "drop-connections" });
  detach = (entity) => this.ask({ do: "detach", entity });
  busy = (times) => this.ask({ do: "busy", times });
  restart = () => this.ask({ do: "restart" });
  count = async (entity) => (await this.ask({ do: "count", entity })).count;
}

function config(queues, topics) {
  const named = (entities, shape) => Object.entries(entities).map(([Name, given]) => ({ Name, ...shape(given) }));
  return {
    UserConfig: {
      Namespaces: [
        {
          Name: "sbemulatorns",
          Queues: named(queues, (Properties) => ({ Properties })),
          Topics: named(topics, ({ subscriptions = {}, ...Properties }) => ({
            Properties,
            Subscriptions: named(subscriptions, ({ rules = {}, ...Properties }) => ({
              Properties,
              Rules: named(rules, (Properties) => ({ Properties })),
            })),
          })),
        },
      ],
      Logging: { Type: "Console" },
    },
  };
}
