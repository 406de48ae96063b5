// rascal, which configures its broker and handles failures by rules.

import assert from "node:assert/strict";
import rascal from "rascal";
import { eventually } from "../stage.mjs";

// One virtual host with what a scenario needs. Without `assert` of the virtual host, which would use the management API.
async function brokered(stage, config, play) {
  const vhosts = { "/": { connection: { url: stage.url, retry: { min: 20, max: 50 } }, ...config } };
  const broker = await rascal.BrokerAsPromised.create({ vhosts });
  broker.on("error", () => {});
  await play(broker);
  await broker.shutdown();
}

// A subscription whose connection may end without ending the suite.
async function subscribed(broker, name, take) {
  const subscription = await broker.subscribe(name);
  subscription.on("error", () => {}).on("message", take);
}

const queue = { assert: true, options: { durable: true } };
const exchange = (type) => ({ assert: true, type, options: { durable: true } });

async function publish(broker, name, body, overrides) {
  const publication = await broker.publish(name, body, overrides);
  return new Promise((done) => {
    publication.on("success", () => done("success")).on("return", () => done("return")).on("error", (error) => done(error.message));
  });
}

export async function rascal_publishes_and_consumes_json(stage) {
  const [events, work] = [stage.name("events"), stage.name("work")];
  const config = {
    exchanges: { [events]: exchange("topic") },
    queues: { [work]: queue },
    bindings: { b: { source: events, destination: work, destinationType: "queue", bindingKey: "order.#" } },
    publications: { out: { exchange: events, routingKey: "order.created", confirm: true } },
    subscriptions: { in: { queue: work } },
  };
  await brokered(stage, config, async (broker) => {
    const seen = [];
    await subscribed(broker, "in", (message, content, acknowledge) => (seen.push([message.fields.routingKey, content]), acknowledge()));
    assert.equal(await publish(broker, "out", { order: 7 }), "success");
    await eventually(() => seen.length === 1, "the message");
    assert.deepEqual(seen, [["order.created", { order: 7 }]]);
  });
}

export async function rascal_hears_of_unroutable_messages(stage) {
  const events = stage.name("events");
  const config = {
    exchanges: { [events]: exchange("direct") },
    publications: { out: { exchange: events, routingKey: "nowhere", options: { mandatory: true }, confirm: true } },
  };
  await brokered(stage, config, async (broker) => assert.equal(await publish(broker, "out", "x"), "return"));
}

export async function rascal_nacks_into_a_dead_letter_queue(stage) {
  const [dlx, work, dead] = [stage.name("dlx"), stage.name("work"), stage.name("dead")];
  const dies = { durable: true, arguments: { "x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": "dead" } };
  const config = {
    exchanges: { [dlx]: exchange("direct") },
    queues: { [work]: { assert: true, options: dies }, [dead]: queue },
    bindings: { b: { source: dlx, destination: dead, destinationType: "queue", bindingKey: "dead" } },
    publications: { out: { queue: work, confirm: true } },
    subscriptions: { in: { queue: work }, dead: { queue: dead } },
  };
  await brokered(stage, config, async (broker) => {
    const seen = [];
    await subscribed(broker, "in", (_m, _c, acknowledge) => acknowledge(new Error("bad"), { strategy: "nack" }));
    await subscribed(broker, "dead", (message, _c, acknowledge) => (seen.push(message), acknowledge()));
    await publish(broker, "out", "x");
    await eventually(() => seen.length === 1, "the dead letter");
    const [{ reason, queue: from, count }] = seen[0].properties.headers["x-death"];
    assert.deepEqual([reason, from, count], ["rejected", work, 1]);
  });
}

export async function rascal_republishes_with_its_count(stage) {
  const work = stage.name("work");
  const config = {
    queues: { [work]: queue },
    publications: { out: { queue: work, confirm: true } },
    subscriptions: { in: { queue: work } },
  };
  await brokered(stage, config, async (broker) => {
    const attempts = [];
    await subscribed(broker, "in", (message, _content, acknowledge) => {
      const recovery = message.properties.headers.rascal?.recovery?.[work];
      attempts.push(recovery?.republished ?? 0);
      if (attempts.length < 3) acknowledge(new Error("not yet"), [{ strategy: "republish", attempts: 5 }, { strategy: "nack" }]);
      else acknowledge();
    });
    await publish(broker, "out", "x");
    await eventually(() => attempts.length === 3, "the third attempt");
    assert.deepEqual(attempts, [0, 1, 2]);
  });
}

export async function rascal_forwards_what_it_cannot_handle(stage) {
  const [failures, work, failed] = [stage.name("failures"), stage.name("work"), stage.name("failed")];
  const config = {
    exchanges: { [failures]: exchange("topic") },
    queues: { [work]: queue, [failed]: queue },
    bindings: { b: { source: failures, destination: failed, destinationType: "queue", bindingKey: "work.failed" } },
    publications: { out: { queue: work, confirm: true }, fail: { exchange: failures, confirm: true } },
    subscriptions: { in: { queue: work }, failed: { queue: failed } },
  };
  await brokered(stage, config, async (broker) => {
    const seen = [];
    await subscribed(broker, "in", (_m, _c, acknowledge) =>
      acknowledge(new Error("bad"), { strategy: "forward", publication: "fail", options: { routingKey: "work.failed" } }),
    );
    await subscribed(broker, "failed", (message, _c, acknowledge) => (seen.push(message), acknowledge()));
    await publish(broker, "out", "x");
    await eventually(() => seen.length === 1, "the forwarded message");
    // rascal shows the first routing key again; the binding proves the other.
    assert.equal(seen[0].fields.routingKey, work);
    assert.equal(Object.keys(seen[0].properties.headers.rascal.recovery).length, 1);
  });
}

export async function rascal_waits_in_a_delay_queue(stage) {
  const [delay, work] = [stage.name("delay"), stage.name("work")];
  const waits = {
    durable: true,
    arguments: { "x-message-ttl": 300, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work },
  };
  const config = {
    queues: { [delay]: { assert: true, options: waits }, [work]: queue },
    publications: { later: { queue: delay, confirm: true } },
    subscriptions: { in: { queue: work } },
  };
  await brokered(stage, config, async (broker) => {
    const seen = [];
    await subscribed(broker, "in", (message, content, acknowledge) => (seen.push(message), acknowledge()));
    assert.equal(await publish(broker, "later", "x"), "success");
    await stage.pass(300);
    await eventually(() => seen.length === 1, "the message");
    assert.equal(seen[0].properties.headers["x-death"][0].reason, "expired");
  });
}

export async function rascal_subscribes_again_after_a_cut(stage) {
  const work = stage.name("work");
  const config = {
    queues: { [work]: queue },
    publications: { out: { queue: work, confirm: true } },
    subscriptions: { in: { queue: work, prefetch: 1, retry: { min: 20, max: 50 } } },
  };
  await brokered(stage, config, async (broker) => {
    const seen = [];
    await subscribed(broker, "in", (message, _content, acknowledge) => {
      seen.push(message.fields.redelivered);
      if (message.fields.redelivered) acknowledge();
    });
    await publish(broker, "out", "x");
    await eventually(() => seen.length === 1, "the first delivery");
    await stage.cut();
    await eventually(() => seen.length === 2, "the second delivery");
    assert.deepEqual(seen, [false, true]);
  });
}
