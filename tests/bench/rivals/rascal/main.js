// rascal: it consumes and acknowledges, as its documentation shows it.
//
// Takes the arguments of redrive's own contestants, prints `ready`, waits for a line, works, and prints what it did as a
// line of JSON.
'use strict';

const { BrokerAsPromised } = require('rascal');
const { parseArgs } = require('node:util');
const { createInterface } = require('node:readline');

// RabbitMQ needs a moment to hand settlements on; those still waiting when the channel closes are forgotten.
const PARTING_MS = 500;

const text = { type: 'string' };
const { values: task } = parseArgs({
  options: {
    variant: text, work: text, url: text, queue: text, 'queue-type': text, count: text, prefetch: text,
  },
});
const wanted = Number(task.count);

async function main() {
  const broker = await BrokerAsPromised.create({
    vhosts: {
      '/': {
        connection: { url: task.url },
        // The queue is there, with arguments that rascal need not know.
        queues: { [task.queue]: { assert: false, check: true } },
        subscriptions: { bench: { queue: task.queue, prefetch: Number(task.prefetch) } },
      },
    },
  });
  broker.on('error', fail);
  console.log('ready');
  await new Promise((go) => createInterface({ input: process.stdin }).once('line', go));

  const seen = new Set();
  let duplicates = 0;
  let began;
  const subscription = await broker.subscribe('bench');
  await new Promise((done, failed) => {
    subscription.on('error', failed).on('message', (message, _content, ackOrNack) => {
      began ??= process.hrtime.bigint();
      const number = Number(message.content.toString('latin1', 1, 13));
      if (seen.has(number)) duplicates += 1;
      seen.add(number);
      ackOrNack();
      if (seen.size === wanted) done();
    });
  });
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  console.log(JSON.stringify({ seconds, messages: seen.size, duplicates }));
  await new Promise((later) => setTimeout(later, PARTING_MS));
  await broker.shutdown();
  process.exit(0);
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

main().catch(fail);
