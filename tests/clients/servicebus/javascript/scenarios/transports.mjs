// Other ways to come in. This client speaks WebSockets only within TLS.

import { readFile } from "node:fs/promises";
import WebSocket from "ws";
import { equal, manual, one, send } from "../checks.mjs";

export async function by_websockets_in_tls(stage) {
  await stage.start({ queues: { q: {} }, tls: true, websockets: true });
  const ca = await readFile(stage.certificate);
  const client = stage.client({ tls: true, webSocketOptions: { webSocket: WebSocket, webSocketConstructorOptions: { ca } } });
  const text = "0123456789abcdef".repeat(10_000);
  await send(client, "q", text);
  const receiver = client.createReceiver("q", manual);
  const message = await one(receiver);
  equal(message.body === text, true, "160 KB came back unchanged");
  await receiver.completeMessage(message);
  equal(await stage.count("q"), 0, "messages left");
}
by_websockets_in_tls.since = [[7, 9, 1], "it knows no port of one's own"];
