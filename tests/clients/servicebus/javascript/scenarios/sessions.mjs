// Sessions: one receiver for one id, in order, with a state and a lock of their own.

import { bodies, collect, equal, manual, one, refused, send } from "../checks.mjs";

const queues = { s: { RequiresSession: true, LockDuration: "PT30S" } };

export async function a_session_is_received_alone_and_in_order(stage) {
  await stage.start({ queues });
  const client = stage.client();
  for (let number = 0; number < 4; number++) {
    await send(client, "s", { body: `a${number}`, sessionId: "a" }, { body: `b${number}`, sessionId: "b" });
  }
  const receiver = await client.acceptSession("s", "a", manual);
  equal(receiver.sessionId, "a");
  const messages = await collect(receiver, 4);
  equal(bodies(messages), ["a0", "a1", "a2", "a3"]);
  for (const message of messages) await receiver.completeMessage(message);
  equal(await stage.count("s"), 4, "messages left");
}

export async function the_next_session_is_one_that_nobody_has(stage) {
  await stage.start({ queues });
  const client = stage.client();
  await send(client, "s", { body: "x", sessionId: "one" }, { body: "y", sessionId: "two" });
  const first = await client.acceptNextSession("s", manual);
  const second = await client.acceptNextSession("s", manual);
  equal([first.sessionId, second.sessionId].sort(), ["one", "two"]);
}

export async function without_a_free_session_the_client_is_told_in_time(stage) {
  await stage.start({ queues });
  await refused("ServiceTimeout", stage.client({ timeoutInMs: 2_000 }).acceptNextSession("s", manual));
}
without_a_free_session_the_client_is_told_in_time.since = [[7, 9, 1], "it loses the reason for which a session is refused"];

export async function a_taken_session_cannot_be_taken(stage) {
  await stage.start({ queues });
  const client = stage.client();
  const holder = await client.acceptSession("s", "a", manual);
  await refused("SessionCannotBeLocked", client.acceptSession("s", "a", manual));
  await holder.close();
  equal((await client.acceptSession("s", "a", manual)).sessionId, "a");
}
a_taken_session_cannot_be_taken.since = [[7, 9, 1], "it loses the reason for which a session is refused"];

export async function a_session_has_a_state(stage) {
  await stage.start({ queues });
  const client = stage.client();
  const first = await client.acceptSession("s", "a", manual);
  equal(await first.getSessionState(), null);
  await first.setSessionState({ step: 1 });
  equal(await first.getSessionState(), { step: 1 });
  await first.close();
  const second = await client.acceptSession("s", "a", manual);
  equal(await second.getSessionState(), { step: 1 });
  await second.setSessionState(null);
  equal(await second.getSessionState(), null);
}

export async function a_renewed_session_lock_holds_from_then_on(stage) {
  await stage.start({ queues: { s: { RequiresSession: true, LockDuration: "PT5M" } } });
  const client = stage.client();
  await send(client, "s", { body: "x", sessionId: "a" });
  const receiver = await client.acceptSession("s", "a", manual);
  const message = await one(receiver);
  const before = receiver.sessionLockedUntilUtc;
  await stage.advance(200);
  equal((await receiver.renewSessionLock()) > before, true, "locked for longer");
  await stage.advance(200);
  await receiver.completeMessage(message);
  equal(await stage.count("s"), 0, "messages left");
}

export async function a_lost_session_gives_its_messages_back(stage) {
  await stage.start({ queues });
  const client = stage.client();
  await send(client, "s", { body: "x", sessionId: "a" });
  const receiver = await client.acceptSession("s", "a", manual);
  await one(receiver);
  await stage.advance(31);
  const again = await client.acceptSession("s", "a", manual);
  const second = await one(again);
  equal([second.body, second.deliveryCount], ["x", 1]);
  await again.completeMessage(second);
  equal(await stage.count("s"), 0, "messages left");
}

export async function a_lost_session_is_not_renewed(stage) {
  await stage.start({ queues });
  const receiver = await stage.client().acceptSession("s", "a", manual);
  await stage.expireSession("s", "a");
  await refused("SessionLockLost", receiver.renewSessionLock());
}

export async function a_deferred_message_of_a_session_is_called_within_it(stage) {
  await stage.start({ queues });
  const client = stage.client();
  await send(client, "s", { body: "x", sessionId: "a" });
  const receiver = await client.acceptSession("s", "a", manual);
  const message = await one(receiver);
  await receiver.deferMessage(message);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  equal([deferred.body, deferred.sessionId], ["x", "a"]);
  await receiver.completeMessage(deferred);
  equal(await stage.count("s"), 0, "messages left");
}

export async function an_entity_with_sessions_has_no_receiver_without(stage) {
  await stage.start({ queues });
  const error = await refused(
    "GeneralError",
    stage.client().createReceiver("s", manual).receiveMessages(1, { maxWaitTimeInMs: 2_000 }),
  );
  equal(/session/i.test(error.message), true, error.message);
}
