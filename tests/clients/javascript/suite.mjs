// Runs the scenarios, many at once: they mostly wait. `node suite.mjs [NAME …]`

import { readdirSync } from "node:fs";
import { Stage } from "./stage.mjs";

const AT_ONCE = 12;
const LONGEST = 180_000;

const chosen = process.argv.slice(2);

const scenarios = new Map();
for (const file of readdirSync(new URL("scenarios", import.meta.url)).sort()) {
  for (const [name, play] of Object.entries(await import(`./scenarios/${file}`))) {
    if (scenarios.has(name)) throw new Error(`two scenarios are called ${name}`);
    scenarios.set(name, play);
  }
}
const unknown = chosen.filter((name) => !scenarios.has(name));
if (unknown.length > 0) throw new Error(`no such scenario: ${unknown}`);

let wanted = [...scenarios].filter(([name]) => chosen.length === 0 || chosen.includes(name));
// What an older client cannot do: `name.since = [[7, 9, 0], "why it could not before"]`.
for (const [name, { since }] of wanted) {
  if (since && Stage.isBefore(since[0])) console.log(`scenario ${name} ... not run: before ${since[0].join(".")} ${since[1]}`);
}
wanted = wanted.filter(([, { since }]) => !since || !Stage.isBefore(since[0]));
const waiting = [...wanted];
const results = [];
await Promise.all(Array.from({ length: AT_ONCE }, work));

const good = results.filter((ok) => ok).length;
const leftOut = wanted.length < scenarios.size ? `, ${scenarios.size - wanted.length} not chosen` : "";
console.log(`suite result: ${good} ok, ${results.length - good} failed${leftOut}`);
// The clients keep timers of what failed.
process.exit(good === results.length ? 0 : 1);

async function work() {
  for (let next = waiting.shift(); next; next = waiting.shift()) results.push(await run(...next));
}

async function run(name, play) {
  const began = performance.now();
  let stage;
  let timer;
  let outcome = "ok";
  try {
    const late = new Promise((_, fail) => (timer = setTimeout(() => fail(new Error("took too long")), LONGEST)));
    const all = async () => {
      stage = await Stage.open();
      await play(stage);
      await stage.close();
    };
    await Promise.race([all(), late]);
  } catch (error) {
    outcome = "FAILED";
    console.log(`--- ${name}\n${error.stack ?? error}`);
    stage?.abandon();
  }
  clearTimeout(timer);
  console.log(`scenario ${name} ... ${outcome} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
  return outcome === "ok";
}
