// amqplib.

import assert from "node:assert/strict";
import amqplib from "amqplib";
import { eventually } from "../stage.mjs";

const durable = { durable: true };

async function connected(stage, play) {
  const connection = await amqplib.connect(stage.url);
  // A refusal that a scenario asks for is told to the caller as well.
  connection.on("error", () => {});
  await play(connection);
  await connection.close();
}

async function open(connection, confirms = false) {
  const channel = await (confirms ? connection.createConfirmChannel() : connection.createChannel());
  channel.on("error", () => {});
  return channel;
}

const got = (channel, queue, options) => eventually(() => channel.get(queue, options), `a message in ${queue}`);
const deaths = (message) => message.properties.headers["x-death"].map(({ queue, reason, count }) => [queue, reason, count]);
const to = (queue) => ({ deadLetterExchange: "", deadLetterRoutingKey: queue });

export async function amqplib_publishes_and_gets_with_every_property(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection, true);
    const { queue } = await channel.assertQueue(stage.name("work"), durable);
    const sent = {
      contentType: "application/json",
      contentEncoding: "utf-8",
      headers: { text: "a", int: 7, float: 1.5, yes: true, list: [1, "b"], table: { deep: { er: 1 } } },
      deliveryMode: 2,
      priority: 3,
      correlationId: "c",
      replyTo: "r",
      messageId: "m",
      timestamp: 1_700_000_000,
      type: "t",
      userId: "guest",
      appId: "app",
    };
    channel.sendToQueue(queue, Buffer.from("{}"), sent);
    await channel.waitForConfirms();
    const { content, fields, properties } = await got(channel, queue);
    assert.equal(content.toString(), "{}");
    assert.equal(fields.routingKey, queue);
    for (const [name, value] of Object.entries(sent)) assert.deepEqual({ ...properties }[name], value, name);
  });
}

export async function amqplib_rejects_into_a_dead_letter_exchange(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection);
    const dlx = stage.name("dlx");
    await channel.assertExchange(dlx, "topic", durable);
    const dead = (await channel.assertQueue(stage.name("dead"), durable)).queue;
    await channel.bindQueue(dead, dlx, "failed.#");
    const options = { durable: true, deadLetterExchange: dlx, deadLetterRoutingKey: "failed.work" };
    const work = (await channel.assertQueue(stage.name("work"), options)).queue;
    channel.sendToQueue(work, Buffer.from("bad"));
    channel.reject(await got(channel, work), false);
    const message = await got(channel, dead);
    assert.deepEqual(deaths(message), [[work, "rejected", 1]]);
    assert.equal(message.fields.routingKey, "failed.work");
    assert.equal("x-last-death-queue" in message.properties.headers, stage.isNew);
  });
}

export async function amqplib_counts_up_in_a_retry_cycle(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection);
    const [work, delay] = [stage.name("work"), stage.name("delay")];
    await channel.assertQueue(delay, { durable: true, messageTtl: 250, ...to(work) });
    await channel.assertQueue(work, { durable: true, ...to(delay) });
    channel.sendToQueue(work, Buffer.from("again"));
    for (let count = 1; count <= 3; count++) {
      channel.nack(await got(channel, work), false, false);
      // A round trip: it was rejected before time passes.
      await channel.checkQueue(delay);
      await stage.pass(250);
      const message = await got(channel, work);
      assert.deepEqual(deaths(message), [[delay, "expired", count], [work, "rejected", count]]);
      channel.nack(message, false, true);
    }
  });
}

export async function amqplib_drops_a_cycle_without_a_rejection(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection, true);
    const [one, two] = [stage.name("one"), stage.name("two")];
    await channel.assertQueue(one, { durable: true, messageTtl: 150, ...to(two) });
    await channel.assertQueue(two, { durable: true, messageTtl: 150, ...to(one) });
    channel.sendToQueue(one, Buffer.from("x"));
    await channel.waitForConfirms();
    await stage.pass(2000);
    assert.equal((await channel.checkQueue(one)).messageCount, 0);
    assert.equal((await channel.checkQueue(two)).messageCount, 0);
  });
}

export async function amqplib_consumes_with_prefetch_and_acks_all(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection);
    const { queue } = await channel.assertQueue(stage.name("work"), durable);
    for (const body of "abcde") channel.sendToQueue(queue, Buffer.from(body));
    await channel.prefetch(2);
    const seen = [];
    await channel.consume(queue, (message) => seen.push(message.content.toString()));
    await eventually(() => seen.length === 2, "two of them");
    assert.equal((await channel.checkQueue(queue)).messageCount, 3);
    channel.ackAll();
    await eventually(() => seen.length === 4, "two more");
    channel.ackAll();
    await eventually(() => seen.length === 5, "the last");
    assert.equal(seen.join(""), "abcde");
  });
}

export async function amqplib_is_returned_what_is_unroutable(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection, true);
    const order = [];
    channel.on("return", ({ fields }) => order.push(`return ${fields.replyCode} ${fields.replyText}`));
    channel.publish("", stage.name("nowhere"), Buffer.from("x"), { mandatory: true }, () => order.push("confirm"));
    await channel.waitForConfirms();
    assert.deepEqual(order, ["return 312 NO_ROUTE", "confirm"]);
  });
}

export async function amqplib_is_nacked_by_a_full_queue(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection, true);
    const options = { durable: true, maxLength: 1, overflow: "reject-publish" };
    const { queue } = await channel.assertQueue(stage.name("work"), options);
    const publish = (body) => new Promise((done) => channel.sendToQueue(queue, Buffer.from(body), {}, (error) => done(error)));
    assert.equal(await publish("fits"), null);
    assert.match((await publish("too much")).message, /message nacked/);
  });
}

export async function amqplib_hears_why_a_channel_was_closed(stage) {
  await connected(stage, async (connection) => {
    const missing = stage.name("missing");
    let error = await (await open(connection)).checkQueue(missing).catch((error) => error);
    assert.equal(error.code, 404);
    assert.match(error.message, new RegExp(`404 \\(NOT-FOUND\\).*NOT_FOUND - no queue '${missing}' in vhost '/'`));
    error = await (await open(connection)).checkExchange(missing).catch((error) => error);
    assert.match(error.message, new RegExp(`NOT_FOUND - no exchange '${missing}' in vhost '/'`));
    const work = stage.name("work");
    await (await open(connection)).assertQueue(work, durable);
    error = await (await open(connection)).assertQueue(work, { durable: true, expires: 60_000 }).catch((error) => error);
    assert.match(error.message, /PRECONDITION_FAILED - inequivalent arg 'x-expires'/);
    error = await (await open(connection)).assertExchange("amq.mine", "direct").catch((error) => error);
    assert.match(error.message, /ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.\*'/);
  });
}

export async function amqplib_gets_null_when_its_queue_is_deleted(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection);
    const { queue } = await channel.assertQueue(stage.name("work"), durable);
    const seen = [];
    await channel.consume(queue, (message) => seen.push(message));
    assert.equal((await channel.deleteQueue(queue)).messageCount, 0);
    await eventually(() => seen.length === 1, "basic.cancel");
    assert.deepEqual(seen, [null]);
  });
}

export async function amqplib_requeues_where_it_was(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection);
    const { queue } = await channel.assertQueue(stage.name("work"), durable);
    for (const body of "abc") channel.sendToQueue(queue, Buffer.from(body));
    const held = [await got(channel, queue), await got(channel, queue)];
    channel.nack(held[1], true, true);
    const bodies = [];
    for (let n = 0; n < 3; n++) bodies.push(await got(channel, queue, { noAck: true }));
    assert.equal(bodies.map(({ content }) => content).join(""), "abc");
    assert.deepEqual(bodies.map(({ fields }) => fields.redelivered), [true, true, false]);
  });
}

export async function amqplib_recovers_what_a_channel_holds(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection);
    const { queue } = await channel.assertQueue(stage.name("work"), durable);
    channel.sendToQueue(queue, Buffer.from("x"));
    await got(channel, queue);
    await channel.recover();
    assert.equal((await got(channel, queue)).fields.redelivered, true);
  });
}

export async function amqplib_lets_one_consumer_at_a_time(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection);
    const options = { durable: true, arguments: { "x-single-active-consumer": true } };
    const { queue } = await channel.assertQueue(stage.name("work"), options);
    const seen = { first: [], second: [] };
    const take = (name) => (message) => message && (seen[name].push(message.content.toString()), channel.ack(message));
    const first = await channel.consume(queue, take("first"));
    await channel.consume(queue, take("second"));
    for (const body of "ab") channel.sendToQueue(queue, Buffer.from(body));
    await eventually(() => seen.first.length === 2, "the first has both");
    await channel.cancel(first.consumerTag);
    channel.sendToQueue(queue, Buffer.from("c"));
    await eventually(() => seen.second.length === 1, "the second takes over");
    assert.deepEqual(seen, { first: ["a", "b"], second: ["c"] });
  });
}

export async function amqplib_refuses_a_second_exclusive_consumer(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection);
    const { queue } = await channel.assertQueue(stage.name("work"), durable);
    await channel.consume(queue, () => {}, { exclusive: true });
    const error = await (await open(connection)).consume(queue, () => {}).catch((error) => error);
    assert.equal(error.code, 403);
    assert.match(error.message, /ACCESS_REFUSED - queue '.*' in vhost '\/' in exclusive use/);
  });
}

export async function amqplib_dies_by_the_delivery_limit(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection, true);
    const dead = (await channel.assertQueue(stage.name("dead"), durable)).queue;
    const quorum = { "x-queue-type": "quorum", "x-delivery-limit": 1 };
    const work = (await channel.assertQueue(stage.name("work"), { durable: true, ...to(dead), arguments: quorum })).queue;
    channel.sendToQueue(work, Buffer.from("poison"));
    await channel.waitForConfirms();
    for (let n = 0; n < 2; n++) channel.reject(await got(channel, work), true);
    assert.deepEqual(deaths(await got(channel, dead)), [[work, "delivery_limit", 1]]);
  });
}

export async function amqplib_loses_a_queue_that_nobody_uses(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection, true);
    const { queue } = await channel.assertQueue(stage.name("work"), { durable: true, expires: 300 });
    channel.sendToQueue(queue, Buffer.from("lost"));
    await channel.waitForConfirms();
    let code;
    // Each question counts as a use, and the timer may be late.
    for (let tries = 0; code !== 404 && tries < 10; tries++) {
      await stage.pass(600);
      ({ code } = await (await open(connection)).checkQueue(queue).catch((error) => error));
    }
    assert.equal(code, 404);
  });
}

export async function amqplib_sends_a_body_of_many_frames(stage) {
  await connected(stage, async (connection) => {
    const channel = await open(connection, true);
    const { queue } = await channel.assertQueue(stage.name("work"), durable);
    const body = Buffer.alloc(700_000, "abcdefg");
    channel.sendToQueue(queue, body);
    channel.sendToQueue(queue, Buffer.alloc(0));
    await channel.waitForConfirms();
    assert.ok((await got(channel, queue)).content.equals(body));
    assert.equal((await got(channel, queue)).content.length, 0);
  });
}
