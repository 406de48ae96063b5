// Topics, and rules that are changed while they are in use.

import { bodies, collect, equal, manual, nothing, one, send } from "../checks.mjs";

// The client lists no rules as one that is undefined.
const listed = async (manager) => {
  const rules = [];
  for await (const rule of manager.listRules()) if (rule) rules.push(rule);
  return rules;
};

export async function each_subscription_gets_its_own_copy(stage) {
  await stage.start({ topics: { t: { subscriptions: { one: {}, two: {} } } } });
  const client = stage.client();
  await send(client, "t", "x");
  for (const name of ["one", "two"]) {
    const receiver = client.createReceiver("t", name, manual);
    const [message] = await collect(receiver, 1);
    equal(message.body, "x");
    await receiver.completeMessage(message);
    await nothing(receiver);
  }
}

export async function rules_are_listed_added_and_removed(stage) {
  await stage.start({ topics: { t: { subscriptions: { one: {} } } } });
  const client = stage.client();
  const manager = client.createRuleManager("t", "one");
  const [standard] = await listed(manager);
  equal([standard.name, standard.filter.sqlExpression], ["$Default", "1=1"]);
  await manager.deleteRule("$Default");
  equal(await listed(manager), []);

  await manager.createRule("dear", { sqlExpression: "price > 10" });
  await manager.createRule("red", { subject: "red", applicationProperties: { tenant: "acme" } });
  const rules = Object.fromEntries((await listed(manager)).map(({ name, filter }) => [name, filter]));
  equal(Object.keys(rules).sort(), ["dear", "red"]);
  equal(rules.dear.sqlExpression, "price > 10");
  equal(rules.red.subject, "red");
  equal({ ...rules.red.applicationProperties }, { tenant: "acme" });

  await send(
    client,
    "t",
    { body: "dear", applicationProperties: { price: 11 } },
    { body: "cheap", applicationProperties: { price: 10 } },
    { body: "red", subject: "red", applicationProperties: { tenant: "acme" } },
    { body: "other red", subject: "red" },
  );
  const receiver = client.createReceiver("t", "one", { receiveMode: "receiveAndDelete" });
  equal(bodies(await collect(receiver, 2)), ["dear", "red"]);
  await nothing(receiver);
}
rules_are_listed_added_and_removed.since = [[7, 7, 3], "it manages no rules"];

export async function rules_of_the_configuration_choose(stage) {
  const sql = (SqlExpression) => ({ rules: { r: { FilterType: "Sql", SqlFilter: { SqlExpression } } } });
  await stage.start({ topics: { t: { subscriptions: { big: sql("size >= 10"), eu: sql("region IN ('de', 'fr')") } } } });
  const client = stage.client();
  await send(
    client,
    "t",
    { body: "a", applicationProperties: { size: 10, region: "us" } },
    { body: "b", applicationProperties: { size: 1, region: "fr" } },
    { body: "c", applicationProperties: { size: 99, region: "de" } },
  );
  for (const [name, expected] of [["big", ["a", "c"]], ["eu", ["b", "c"]]]) {
    equal(bodies(await collect(client.createReceiver("t", name, manual), 2)), expected, name);
    equal(await stage.count(`t/subscriptions/${name}`), 2, name);
  }
}

const price_15 = { body: "x", subject: "order", applicationProperties: { price: 15, color: "red", secret: "s" } };

// What an action changes: the subject, and the properties.
const told = ({ subject, applicationProperties }) => [subject, { ...applicationProperties }];

export async function actions_of_the_configuration_change_their_copy(stage) {
  const rules = {
    dear: {
      FilterType: "Sql",
      SqlFilter: { SqlExpression: "price > 10" },
      Action: { SqlExpression: "SET sys.Label = 'dear'; SET color = 'none'; REMOVE secret" },
    },
  };
  await stage.start({ topics: { t: { subscriptions: { one: { rules }, other: {} } } } });
  const client = stage.client();
  await send(client, "t", price_15);
  const changed = await one(client.createReceiver("t", "one", manual));
  equal(told(changed), ["dear", { price: 15, color: "none", RuleName: "dear" }]);
  equal(told(await one(client.createReceiver("t", "other", manual))), ["order", price_15.applicationProperties]);
}

export async function actions_are_added_and_listed(stage) {
  await stage.start({ topics: { t: { subscriptions: { one: {} } } } });
  const client = stage.client();
  const manager = client.createRuleManager("t", "one");
  await manager.deleteRule("$Default");
  const sqlExpression = "SET doubled = price * 2; REMOVE secret";
  await manager.createRule("dear", { sqlExpression: "price > 10" }, { sqlExpression });
  const [rule] = await listed(manager);
  equal([rule.name, rule.filter.sqlExpression, rule.action.sqlExpression], ["dear", "price > 10", sqlExpression]);
  await send(client, "t", price_15);
  const changed = await one(client.createReceiver("t", "one", manual));
  equal(told(changed), ["order", { price: 15, color: "red", doubled: 30, RuleName: "dear" }]);
}
actions_are_added_and_listed.since = [[7, 7, 3], "it manages no rules"];

export async function what_was_handed_on_too_often_rests_in_the_transfer_dead_letter_queue(stage) {
  // Four hops are the most; the fifth is from 4 to 5.
  const onward = [0, 1, 2, 3, 4].map((number) => [number, { ForwardTo: String(number + 1) }]);
  await stage.start({ queues: { ...Object.fromEntries(onward), 5: {} } });
  const client = stage.client();
  await send(client, "0", { body: "x", messageId: "m" });
  const receiver = client.createReceiver("4", { subQueueType: "transferDeadLetter", ...manual });
  const dead = await one(receiver);
  equal([dead.body, dead.messageId, dead.deadLetterReason], ["x", "m", "MaxTransferHopCountExceeded"]);
  await receiver.completeMessage(dead);
  equal(await stage.count("4/$Transfer/$DeadLetterQueue"), 0, "messages left");
  equal(await stage.count("5"), 0, "messages handed on");
}

export async function what_a_full_queue_does_not_take_rests_in_the_transfer_dead_letter_queue(stage) {
  await stage.start({ queues: { end: { MaxSizeInMegabytes: 1 }, q: { ForwardTo: "end" } } });
  const client = stage.client();
  let sent = 0;
  for (; (await stage.count("q/$Transfer/$DeadLetterQueue")) === 0; sent++) {
    equal(sent < 12, true, "1 MB is full after 12 messages of 200 KB");
    await send(client, "q", { body: "x".repeat(200_000), messageId: String(sent) });
  }
  const dead = await one(client.createReceiver("q", { subQueueType: "transferDeadLetter", ...manual }));
  equal(dead.messageId, String(sent - 1), "the last one");
  equal(/size limit/.test(dead.deadLetterErrorDescription), true, dead.deadLetterErrorDescription);
}
