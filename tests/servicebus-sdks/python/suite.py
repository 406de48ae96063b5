"""Runs the scenarios, many at once: they mostly wait. `python suite.py [--fast] [NAME ...]`"""

import argparse
import asyncio
import importlib
import logging
import pathlib
import sys
import time
import traceback

from stage import VERSION, Stage

AT_ONCE = 16
#: How long a scenario may take before it counts as hanging.
LONGEST = 600

SCENARIOS = {}


def scenario(function=None, *, slow=False, since=None, why=None):
    """A scenario: `async def name(stage)`.

    A slow one waits for real time, and is left out of the fast part. One that an older client cannot run says since which
    version it can, and why it could not before.
    """

    def register(function):
        if function.__name__ in SCENARIOS:
            raise ValueError(f"two scenarios are called {function.__name__}")
        lacking = f"before {'.'.join(map(str, since))} {why}" if since and VERSION < since else None
        SCENARIOS[function.__name__] = (function, slow, lacking)
        return function

    return register(function) if function else register


async def run(name, function, places):
    async with places:
        began = time.monotonic()
        stage = None
        try:
            async with asyncio.timeout(LONGEST):
                stage = await Stage.open()
                await function(stage)
                await stage.close()
            outcome = "ok"
        except Exception:
            outcome = "FAILED"
            print(f"--- {name}\n{traceback.format_exc()}", flush=True)
            if stage:
                stage.abandon()
        print(f"scenario {name} ... {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
        return outcome == "ok"


async def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--fast", action="store_true", help="without those that wait for real time")
    arguments.add_argument("names", nargs="*")
    chosen = arguments.parse_args()

    for file in sorted((pathlib.Path(__file__).parent / "scenarios").glob("*.py")):
        importlib.import_module(f"scenarios.{file.stem}")
    unknown = set(chosen.names) - set(SCENARIOS)
    if unknown:
        sys.exit(f"no such scenario: {', '.join(sorted(unknown))}")
    wanted = {}
    for name, (function, slow, lacking) in SCENARIOS.items():
        if (chosen.names and name not in chosen.names) or (chosen.fast and slow):
            continue
        if lacking:
            print(f"scenario {name} ... not run: {lacking}", flush=True)
        else:
            wanted[name] = function

    places = asyncio.Semaphore(AT_ONCE)
    results = await asyncio.gather(*(run(name, function, places) for name, function in wanted.items()))
    left_out = f", {len(SCENARIOS) - len(wanted)} not chosen" if len(wanted) < len(SCENARIOS) else ""
    print(f"suite result: {sum(results)} ok, {len(results) - sum(results)} failed{left_out}", flush=True)
    return all(results)


if __name__ == "__main__":
    # `scenarios.*` import this file as `suite`: the one that runs must be the same.
    sys.modules["suite"] = sys.modules["__main__"]
    # The clients log every refusal that a scenario asks for.
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    sys.exit(0 if asyncio.run(main()) else 1)
