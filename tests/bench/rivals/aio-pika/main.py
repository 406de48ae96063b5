"""aio-pika: it consumes and acknowledges, as its documentation shows it.

Takes the arguments of redrive's own contestants, prints `ready`, waits for a line, works, and prints what it did as a line
of JSON.
"""

import argparse
import asyncio
import json
import sys
import time

import aio_pika

# RabbitMQ needs a moment to hand settlements on; those still waiting when the channel closes are forgotten.
PARTING = 0.5


async def main(task):
    wanted = int(task.count)
    connection = await aio_pika.connect(task.url)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=int(task.prefetch))
    queue = await channel.get_queue(task.queue, ensure=True)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    seen = set()
    duplicates = 0
    began = None
    done = asyncio.Event()

    async def handle(message):
        nonlocal began, duplicates
        if began is None:
            began = time.perf_counter()
        number = int(message.body[1:13])
        duplicates += number in seen
        seen.add(number)
        await message.ack()
        if len(seen) == wanted:
            done.set()

    await queue.consume(handle)
    await done.wait()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "messages": len(seen), "duplicates": duplicates}), flush=True)
    await asyncio.sleep(PARTING)
    await connection.close()


arguments = argparse.ArgumentParser()
for name in ("variant", "work", "url", "queue", "queue-type", "count", "prefetch"):
    arguments.add_argument(f"--{name}", required=True)
asyncio.run(main(arguments.parse_args()))
