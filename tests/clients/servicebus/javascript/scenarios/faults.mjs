// What is refused, and what breaks in the middle.

import { bodies, collect, equal, manual, one, refused, send, until } from "../checks.mjs";

export async function an_unknown_queue_is_not_found(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client();
  await refused("MessagingEntityNotFound", send(client, "nowhere", "x"));
  const receiver = client.createReceiver("nowhere", manual);
  await refused("MessagingEntityNotFound", receiver.receiveMessages(1, { maxWaitTimeInMs: 2_000 }));
  await send(client, "q", "x");
  equal(await stage.count("q"), 1, "messages");
}

export async function a_wrong_key_is_refused(stage) {
  await stage.start({ queues: { q: {} }, key: "the right one" });
  await refused("UnauthorizedAccess", send(stage.client({ key: "another" }), "q", "x"));
  await send(stage.client({ key: "the right one" }), "q", "x");
  equal(await stage.count("q"), 1, "messages");
}

export async function a_full_queue_takes_no_more(stage) {
  await stage.start({ queues: { q: { MaxSizeInMegabytes: 1 } } });
  const sender = stage.client().createSender("q");
  let sent = 0;
  const fill = async () => {
    for (; sent < 12; sent++) await sender.sendMessages({ body: "x".repeat(200_000) });
  };
  await refused("QuotaExceeded", fill());
  equal(sent >= 4 && sent <= 6, true, `${sent} messages of 200 KB in 1 MB`);
}

export async function a_busy_server_is_an_error_or_tried_again(stage) {
  await stage.start({ queues: { q: {} } });
  const once = stage.client().createSender("q");
  await once.sendMessages({ body: "a" });
  await stage.busy(1);
  await refused("ServiceBusy", once.sendMessages({ body: "b" }));
  const patient = stage.client({ maxRetries: 3 }).createSender("q");
  await patient.sendMessages({ body: "c" });
  await stage.busy(2);
  await patient.sendMessages({ body: "d" });
  equal(bodies(await collect(stage.client().createReceiver("q", manual), 3)), ["a", "c", "d"]);
}

export async function clients_go_on_after_their_connection_is_cut(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client({ maxRetries: 5 });
  const sender = client.createSender("q");
  for (let number = 0; number < 9; number++) {
    if (number % 4 === 2) await stage.dropConnections();
    await sender.sendMessages({ body: number });
  }
  const receiver = client.createReceiver("q", manual);
  const seen = new Set();
  while ((await stage.count("q")) > 0) {
    const message = await one(receiver);
    if (seen.size % 4 === 2) await stage.dropConnections();
    await receiver.completeMessage(message);
    seen.add(message.body);
  }
  equal([...seen], [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

export async function a_subscriber_goes_on_after_its_link_is_detached(stage) {
  await stage.start({ queues: { q: {} } });
  const client = stage.client({ maxRetries: 5 });
  const receiver = client.createReceiver("q", manual);
  const seen = [];
  let wake;
  const subscription = receiver.subscribe({
    processMessage: async ({ body }) => (seen.push(body), wake?.()),
    processError: async () => {},
  });
  const next = () => new Promise((woken) => (wake = woken));
  let came = next();
  await send(client, "q", "a");
  await came;
  await stage.detach("q");
  came = next();
  await send(client, "q", "b");
  await came;
  await subscription.close();
  equal(seen, ["a", "b"]);
}

export async function messages_outlive_a_crash(stage) {
  await stage.start({ queues: { q: {} }, stored: true });
  const client = stage.client({ maxRetries: 5 });
  await send(client, "q", "a", "b", "c");
  const receiver = client.createReceiver("q", manual);
  await receiver.completeMessage(await one(receiver));
  await stage.restart();
  equal(bodies(await collect(receiver, 2)), ["b", "c"]);
}

export async function links_that_were_idle_for_too_long_are_attached_again(stage) {
  await stage.start({ queues: { q: {} }, idle_links: 600 });
  const client = stage.client({ maxRetries: 5 });
  const [sender, receiver] = [client.createSender("q"), client.createReceiver("q", manual)];
  await sender.sendMessages({ body: "a" });
  await receiver.completeMessage(await one(receiver));
  await stage.advance(601);
  await sender.sendMessages({ body: "b" });
  await receiver.completeMessage(await one(receiver));
  equal(await stage.count("q"), 0, "messages left");
}

export async function a_settlement_after_the_lock_is_lost_is_refused_also_in_a_session(stage) {
  await stage.start({ queues: { s: { RequiresSession: true, LockDuration: "PT30S" } } });
  const client = stage.client();
  await send(client, "s", { body: "x", sessionId: "a" });
  const receiver = await client.acceptSession("s", "a", manual);
  const message = await one(receiver);
  await stage.advance(31);
  // A settlement that crosses the end of its link is answered to nobody: the client waits for a minute.
  await until(() => receiver.isClosed, "the client hears of the loss");
  await refused("SessionLockLost", receiver.completeMessage(message));
  equal(await stage.count("s"), 1, "messages left");
}
