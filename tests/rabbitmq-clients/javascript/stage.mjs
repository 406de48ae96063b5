// A broker for one scenario, real or emulated. `../src/stage.rs` answers: one line of JSON for each request.

import { connect } from "node:net";
import { createInterface } from "node:readline";

// How long something that must happen may take on a slow machine.
const LONGEST = 60_000;

export class Stage {
  #socket;
  #lines;
  #turn = Promise.resolve();
  #names = [];
  #prefix;

  static async open() {
    const at = process.env.REDRIVE_STAGE.lastIndexOf(":");
    const stage = new Stage();
    stage.#socket = connect({
      host: process.env.REDRIVE_STAGE.slice(0, at),
      port: Number(process.env.REDRIVE_STAGE.slice(at + 1)),
      noDelay: true,
    });
    stage.#lines = createInterface({ input: stage.#socket })[Symbol.asyncIterator]();
    await new Promise((opened, failed) => stage.#socket.once("connect", opened).once("error", failed));
    const { url, prefix, version } = await stage.#ask({ do: "start" });
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
    return this.#ask({ do: "pass", milliseconds });
  }

  // Cuts all connections without a word.
  cut() {
    return this.#ask({ do: "cut" });
  }

  async close() {
    await this.#ask({ do: "close", names: this.#names });
    this.#socket.destroy();
  }

  abandon() {
    this.#socket.destroy();
  }

  #ask(request) {
    const answer = this.#turn.then(async () => {
      this.#socket.write(JSON.stringify(request) + "\n");
      const { value, done } = await this.#lines.next();
      const answer = done ? { error: "the stage is gone" } : JSON.parse(value);
      if (answer.error) throw new Error(`the stage cannot ${JSON.stringify(request)}: ${answer.error}`);
      return answer;
    });
    this.#turn = answer.catch(() => {});
    return answer;
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
