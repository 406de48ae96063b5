// A broker for one scenario, real or emulated.

import { Connection } from "./connection.mjs";

// How long something that must happen may take on a slow machine.
const LONGEST = 60_000;

export class Stage extends Connection {
  #names = [];
  #prefix;

  static async open() {
    const stage = new Stage();
    await stage.open();
    const { url, prefix, version } = await stage.ask({ do: "start" });
    stage.url = url;
    stage.isNew = version !== "3.10";
    stage.#prefix = prefix;
    return stage;
  }

  // A name that nobody else uses; what is declared under it is deleted at the end.
  name(name) {
    this.#names.push(this.#prefix + name);
    return this.#prefix + name;
  }

  pass(milliseconds) {
    return this.ask({ do: "pass", milliseconds });
  }

  // Cuts all connections without a word.
  cut() {
    return this.ask({ do: "cut" });
  }

  async close() {
    await this.ask({ do: "close", names: this.#names });
    this.abandon();
  }
}

// Waits until `look` gives something true, and gives it back.
export async function eventually(look, what) {
  for (const until = Date.now() + LONGEST; Date.now() < until; ) {
    const seen = await look();
    if (seen) return seen;
    await new Promise((next) => setTimeout(next, 5));
  }
  throw new Error(`not within ${LONGEST} ms: ${what}`);
}
