// The Rust side of the suite: starts an emulator for a scenario, moves its clock, breaks it on purpose.
// One TCP connection for one emulator; each request is a line of JSON and has one line of answer. `../src/stage.rs` answers.

import { connect } from "node:net";
import { createInterface } from "node:readline";
import { ServiceBusClient } from "@azure/service-bus";

const KEY_NAME = "RootManageSharedAccessKey";

export class Stage {
  #socket;
  #lines;
  #turn = Promise.resolve();
  #clients = [];
  #port = 0;

  static async open() {
    const [host, port] = process.env.REDRIVE_STAGE.split(":");
    const stage = new Stage();
    stage.#socket = connect({ host, port: Number(port), noDelay: true });
    stage.#lines = createInterface({ input: stage.#socket })[Symbol.asyncIterator]();
    await new Promise((opened, failed) => stage.#socket.once("connect", opened).once("error", failed));
    return stage;
  }

  async close() {
    await Promise.allSettled(this.#clients.map((client) => client.close()));
    this.#socket.destroy();
  }

  // After a failure: a client may hang in its closing.
  abandon() {
    this.#socket.destroy();
  }

  ask(request) {
    const answer = this.#turn.then(async () => {
      this.#socket.write(JSON.stringify(request) + "\n");
      const { value, done } = await this.#lines.next();
      const answer = done ? { error: "the stage is gone" } : JSON.parse(value);
      if (answer.error) throw new Error(`the stage cannot ${JSON.stringify(request)}: ${answer.error}`);
      return answer;
    });
    this.#turn = answer.catch(() => {});
    return answer;
  }

  // Starts the emulator with these entities: `{ name: { LockDuration: "PT30S", … } }`, as in Config.json.
  // Plans: `key: "…"`, `stored: true`, `idle_links: seconds`, `tls: true`, `websockets: true`.
  async start({ queues = {}, topics = {}, ...plan }) {
    const { port, certificate } = await this.ask({ do: "start", config: config(queues, topics), ...plan });
    this.#port = port;
    this.certificate = certificate;
  }

  // A client of its own connection; closed with the stage.
  client({ key = "SAS_KEY_VALUE", tls = false, webSocketOptions, ...retryOptions } = {}) {
    const client = new ServiceBusClient(
      `Endpoint=sb://localhost:${this.#port};SharedAccessKeyName=${KEY_NAME};` +
        `SharedAccessKey=${key};${tls ? "" : "UseDevelopmentEmulator=true;"}`,
      { webSocketOptions, retryOptions: { maxRetries: 0, timeoutInMs: 20_000, retryDelayInMs: 100, ...retryOptions } },
    );
    this.#clients.push(client);
    return client;
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
