// What the scenarios have in common: sending, collecting, comparing.

import assert from "node:assert/strict";

// How long something may take that is expected to come, and nothing must come where nothing is expected.
const PATIENCE = 60_000;
const QUIET = 1_000;

export const equal = (actual, expected, what) => assert.deepEqual(actual, expected, what && `${what}: ${JSON.stringify(actual)}, expected ${JSON.stringify(expected)}`);

// The promise must fail with a ServiceBusError of this code.
export async function refused(code, promise) {
  try {
    await promise;
  } catch (error) {
    if (error.name !== "ServiceBusError" || error.code !== code) {
      throw new Error(`refused with ${error.name} ${error.code}: ${error.message}, expected ${code}`);
    }
    return error;
  }
  throw new Error(`nothing was refused, expected ${code}`);
}

export const bodies = (messages) => messages.map((message) => message.body);

export async function send(client, entity, ...messages) {
  const sender = client.createSender(entity);
  for (const message of messages) await sender.sendMessages(typeof message === "string" ? { body: message } : message);
  await sender.close();
}

// Exactly `count` messages, in the order in which they came.
export async function collect(receiver, count) {
  const messages = [];
  const end = Date.now() + PATIENCE;
  while (messages.length < count) {
    if (Date.now() > end) throw new Error(`only ${JSON.stringify(bodies(messages))} of ${count} came in time`);
    messages.push(...(await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs: 2_000 })));
  }
  return messages;
}

export async function one(receiver) {
  return (await collect(receiver, 1))[0];
}

export async function nothing(receiver) {
  equal(bodies(await receiver.receiveMessages(1, { maxWaitTimeInMs: QUIET })), [], "received");
}

export async function until(condition, what) {
  const end = Date.now() + PATIENCE;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`not within ${PATIENCE} ms: ${what}`);
    await new Promise((later) => setTimeout(later, 50));
  }
}

// Without the client's own renewal of locks, which would hold what a scenario lets go.
export const manual = { maxAutoLockRenewalDurationInMs: 0 };
