// What a scenario asks of the Rust side: a line of JSON, and a line of answer. `../src/stage.rs` answers.

import { connect } from "node:net";
import { createInterface } from "node:readline";

export class Connection {
  #socket;
  #lines;
  #turn = Promise.resolve();

  async open() {
    const [host, port] = process.env.REDRIVE_STAGE.split(":");
    this.#socket = connect({ host, port: Number(port), noDelay: true });
    this.#lines = createInterface({ input: this.#socket })[Symbol.asyncIterator]();
    await new Promise((opened, failed) => this.#socket.once("connect", opened).once("error", failed));
  }

  ask(request) {
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

  // Also after a failure: a client may hang in its closing.
  abandon() {
    this.#socket.destroy();
  }
}
