// Queues: sending, settling, looking, time.

import Long from "long";
import { bodies, collect, equal, manual, nothing, one, refused, send, until } from "../checks.mjs";

const DLQ = "q/$deadletterqueue";

export async function every_property_comes_back(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  await send(client, "q", {
    body: { order: 7, lines: ["a", "ü ✓"] },
    messageId: "m-1",
    contentType: "application/json",
    correlationId: "c-1",
    subject: "label",
    to: "somewhere",
    replyTo: "back",
    replyToSessionId: "back-session",
    partitionKey: "part",
    timeToLive: 7 * 60_000,
    applicationProperties: { text: "ü", number: 7, half: 0.5, yes: true, when: new Date(1767323045000), none: null },
  });
  const receiver = client.createReceiver("q", manual);
  const message = await one(receiver);
  equal(message.body, { order: 7, lines: ["a", "ü ✓"] });
  equal(message.messageId, "m-1");
  equal(message.contentType, "application/json");
  equal(message.correlationId, "c-1");
  equal(message.subject, "label");
  equal(message.to, "somewhere");
  equal(message.replyTo, "back");
  equal(message.replyToSessionId, "back-session");
  equal(message.partitionKey, "part");
  equal(message.timeToLive, 7 * 60_000);
  equal(message.deliveryCount, 0);
  equal(message.state, "active");
  equal(message.sequenceNumber.toNumber(), 1);
  equal(message.enqueuedSequenceNumber, 1);
  equal(Math.abs(Date.now() - message.enqueuedTimeUtc.getTime()) < 60_000, true, "enqueued now");
  equal(message.expiresAtUtc.getTime() - message.enqueuedTimeUtc.getTime(), 7 * 60_000);
  equal(message.lockedUntilUtc > message.enqueuedTimeUtc, true, "locked for a while");
  const { when, ...rest } = message.applicationProperties;
  equal(rest, { text: "ü", number: 7, half: 0.5, yes: true, none: null });
  equal(new Date(when).getTime(), 1767323045000);
  await receiver.completeMessage(message);
  equal(await stage.count("q"), 0, "messages left");
}

export async function bodies_of_each_amqp_kind_pass_through(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  await send(
    client,
    "q",
    { body: Buffer.from([0, 255, 7]), bodyType: "data" },
    { body: ["a", 1, [true]], bodyType: "sequence" },
    { body: { map: [1, 2.5, "three"] }, bodyType: "value" },
  );
  const receiver = client.createReceiver("q", { receiveMode: "receiveAndDelete" });
  const [data, sequence, value] = await collect(receiver, 3);
  equal([...data.body], [0, 255, 7]);
  equal(data._rawAmqpMessage.bodyType, "data");
  equal(sequence.body, ["a", 1, [true]]);
  equal(sequence._rawAmqpMessage.bodyType, "sequence");
  equal(value.body, { map: [1, 2.5, "three"] });
  equal(value._rawAmqpMessage.bodyType, "value");
}

export async function a_batch_of_a_thousand_keeps_its_order(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  const sender = client.createSender("q");
  const batch = await sender.createMessageBatch();
  for (let number = 0; number < 1000; number++) equal(batch.tryAddMessage({ body: number }), true, "fits");
  await sender.sendMessages(batch);
  equal(await stage.count("q"), 1000, "messages stored");
  const receiver = client.createReceiver("q", { receiveMode: "receiveAndDelete" });
  equal(bodies(await collect(receiver, 1000)), Array.from({ length: 1000 }, (_, number) => number));
  equal(await stage.count("q"), 0, "messages left");
}

export async function a_batch_is_full_at_the_limit_of_the_entity(stage) {
  await stage.start({ queues: { q: {} } });
  const batch = await stage.client().createSender("q").createMessageBatch();
  equal(batch.maxSizeInBytes, 256 * 1024);
  equal(batch.tryAddMessage({ body: "x".repeat(200 * 1024) }), true);
  equal(batch.tryAddMessage({ body: "x".repeat(100 * 1024) }), false);
}

export async function a_message_above_the_limit_is_refused(stage) {
  await stage.start({ queues: { q: {} } });
  const sender = stage.client().createSender("q");
  await refused("MessageSizeExceeded", sender.sendMessages({ body: "x".repeat(300 * 1024) }));
  await sender.sendMessages({ body: "small" });
  equal(await stage.count("q"), 1, "messages");
}

export async function a_megabyte_passes_where_it_is_allowed(stage) {
  await stage.start({ queues: { large: { MaxMessageSizeInKilobytes: 2048 } } });
  const client = stage.client();
  const text = "0123456789abcdef".repeat((1024 * 1024) / 16);
  await send(client, "large", text);
  const receiver = client.createReceiver("large", manual);
  const message = await one(receiver);
  equal(message.body === text, true, "1 MB came back unchanged");
  await receiver.completeMessage(message);
  equal(await stage.count("large"), 0, "messages left");
}

export async function an_abandoned_message_returns_with_its_new_properties(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  await send(client, "q", { body: "a", applicationProperties: { kept: 1, changed: "old" } }, "b");
  const receiver = client.createReceiver("q", manual);
  await receiver.abandonMessage(await one(receiver), { changed: "new", added: true });
  const again = await one(receiver);
  equal(again.body, "a");
  equal(again.deliveryCount, 1);
  equal({ ...again.applicationProperties }, { kept: 1, changed: "new", added: true });
}

export async function a_dead_letter_has_reason_description_and_properties(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  await send(client, "q", { body: "bad", applicationProperties: { mine: 1 } }, "plain");
  const receiver = client.createReceiver("q", manual);
  const [bad, plain] = await collect(receiver, 2);
  await receiver.deadLetterMessage(bad, { deadLetterReason: "Poison", deadLetterErrorDescription: "ü", extra: "x" });
  await receiver.deadLetterMessage(plain);
  const dead = client.createReceiver("q", { subQueueType: "deadLetter", ...manual });
  const [first, second] = await collect(dead, 2);
  equal([first.body, first.deadLetterReason, first.deadLetterErrorDescription], ["bad", "Poison", "ü"]);
  equal(first.applicationProperties.mine, 1);
  equal(first.applicationProperties.extra, "x");
  equal([second.body, second.deadLetterReason, second.deadLetterErrorDescription], ["plain", undefined, undefined]);
  await dead.completeMessage(first);
  await dead.completeMessage(second);
  equal(await stage.count(DLQ), 0, "messages left");
}

export async function the_last_allowed_failure_moves_to_the_dead_letter_queue(stage) {
  await stage.start({ queues: { q: { MaxDeliveryCount: 2 } } });
  const client = stage.client();
  await send(client, "q", "bad");
  const receiver = client.createReceiver("q", manual);
  await receiver.abandonMessage(await one(receiver));
  await receiver.abandonMessage(await one(receiver));
  await nothing(receiver);
  const dead = await one(client.createReceiver("q", { subQueueType: "deadLetter" }));
  equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
}

export async function a_deferred_message_comes_only_when_called(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  await send(client, "q", "later");
  const receiver = client.createReceiver("q", manual);
  const message = await one(receiver);
  await receiver.deferMessage(message, { why: "too early" });
  await nothing(receiver);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  equal(deferred.body, "later");
  equal(deferred.state, "deferred");
  equal(deferred.applicationProperties.why, "too early");
  await receiver.completeMessage(deferred);
  await refused("MessageNotFound", receiver.receiveDeferredMessages(Long.fromNumber(4711)));
  equal(await stage.count("q"), 0, "messages left");
}

export async function a_scheduled_message_comes_when_its_time_has_come(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  const sender = client.createSender("q");
  const when = new Date(Date.now() + 120_000);
  const [kept, cancelled] = await sender.scheduleMessages([{ body: "kept" }, { body: "cancelled" }], when);
  await sender.cancelScheduledMessages(cancelled);
  const receiver = client.createReceiver("q", manual);
  const peeked = await receiver.peekMessages(5);
  equal(peeked.map(({ body, state }) => [body, state]), [["kept", "scheduled"]]);
  equal(peeked[0].sequenceNumber.equals(kept), true, "sequence number");
  await nothing(receiver);
  await stage.advance(121);
  const message = await one(receiver);
  equal([message.body, message.state], ["kept", "active"]);
  equal(message.sequenceNumber.greaterThan(kept), true, "active under a new sequence number");
  await refused("MessageNotFound", sender.cancelScheduledMessages(cancelled));
}

export async function peeking_takes_and_locks_nothing(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  await send(client, "q", "0", "1", "2", "3");
  const receiver = client.createReceiver("q", manual);
  equal(bodies(await receiver.peekMessages(2)), ["0", "1"]);
  equal(bodies(await receiver.peekMessages(2)), ["2", "3"]);
  equal(bodies(await receiver.peekMessages(9, { fromSequenceNumber: Long.fromNumber(3) })), ["2", "3"]);
  equal(bodies(await receiver.peekMessages(9, { fromSequenceNumber: Long.fromNumber(9) })), []);
  equal((await one(receiver)).body, "0");
}

export async function an_expired_lock_is_lost(stage) {
  await stage.start({ queues: { q: { LockDuration: "PT30S" } } });
  const client = stage.client();
  await send(client, "q", "a", "b", "c", "d");
  const receiver = client.createReceiver("q", manual);
  const [a, b, c, d] = await collect(receiver, 4);
  await stage.advance(31);
  await refused("MessageLockLost", receiver.completeMessage(a));
  await refused("MessageLockLost", receiver.abandonMessage(b));
  await refused("MessageLockLost", receiver.deferMessage(c));
  await refused("MessageLockLost", receiver.deadLetterMessage(d));
  await refused("MessageLockLost", receiver.renewMessageLock(d));
  const again = await collect(receiver, 4);
  equal(again.map(({ body, deliveryCount }) => [body, deliveryCount]), [["a", 1], ["b", 1], ["c", 1], ["d", 1]]);
}

export async function a_renewed_lock_holds_from_then_on(stage) {
  await stage.start({ queues: { q: { LockDuration: "PT5M" } } });
  const client = stage.client();
  await send(client, "q", "a");
  const receiver = client.createReceiver("q", manual);
  const message = await one(receiver);
  await stage.advance(200);
  const until = await receiver.renewMessageLock(message);
  equal(until > new Date(message.enqueuedTimeUtc.getTime() + 450_000), true, `locked until ${until}`);
  await stage.advance(200);
  await nothing(client.createReceiver("q", manual));
  await receiver.completeMessage(message);
  equal(await stage.count("q"), 0, "messages left");
}

export async function a_subscriber_is_called_and_completes(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  const seen = [];
  const errors = [];
  const receiver = client.createReceiver("q");
  const subscription = receiver.subscribe(
    { processMessage: async ({ body }) => void seen.push(body), processError: async ({ error }) => void errors.push(error) },
    { maxConcurrentCalls: 3 },
  );
  await send(client, "q", ...Array.from({ length: 20 }, (_, number) => String(number)));
  await until(async () => (await stage.count("q")) === 0, "all are completed");
  await subscription.close();
  equal(seen.sort((a, b) => a - b), Array.from({ length: 20 }, (_, number) => String(number)));
  equal(errors, []);
}

export async function a_failing_subscriber_abandons(stage) {
  await stage.start({ queues: { q: { MaxDeliveryCount: 3 } } });
  const client = stage.client();
  const counts = [];
  const errors = [];
  const subscription = client.createReceiver("q").subscribe({
    processMessage: async ({ deliveryCount }) => {
      counts.push(deliveryCount);
      throw new Error("cannot");
    },
    processError: async ({ error, errorSource }) => void errors.push([error.message, errorSource]),
  });
  await send(client, "q", "bad");
  await until(async () => (await stage.count(DLQ)) === 1, "it is dead-lettered");
  await subscription.close();
  equal(counts, [0, 1, 2]);
  equal(errors, Array(3).fill(["cannot", "processMessageCallback"]));
}

export async function two_receivers_share_without_overlap(stage) {
  await stage.start({ queues: { q: {} } });
  const clients = [stage.client(), stage.client()];
  await send(clients[0], "q", ...Array.from({ length: 60 }, (_, number) => String(number)));
  const receivers = clients.map((client) => client.createReceiver("q", manual));
  // Both have some before either goes on.
  const first = [await collect(receivers[0], 5), await collect(receivers[1], 5)];
  const seen = [];
  const work = async (receiver, messages) => {
    for (;;) {
      for (const message of messages) {
        seen.push(Number(message.body));
        await receiver.completeMessage(message);
      }
      if ((await stage.count("q")) === 0) return;
      messages = await receiver.receiveMessages(5, { maxWaitTimeInMs: 1_000 });
    }
  };
  await Promise.all(receivers.map((receiver, number) => work(receiver, first[number])));
  equal(seen.sort((a, b) => a - b), Array.from({ length: 60 }, (_, number) => number));
}
