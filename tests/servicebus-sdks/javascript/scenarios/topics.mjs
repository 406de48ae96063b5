// Topics, and rules that are changed while they are in use.

import { bodies, collect, equal, manual, nothing, send } from "../checks.mjs";

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
