"""Runs the scenarios, many at once: they mostly wait. `python suite.py [NAME ...]`"""

import asyncio
import importlib
import inspect
import logging
import pathlib
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from stage import Stage

AT_ONCE = 12
#: How long a scenario may take before it counts as hanging.
LONGEST = 180

SCENARIOS = {}


def scenario(function):
    """A scenario: `def name(stage)` or `async def name(stage)`."""
    if function.__name__ in SCENARIOS:
        raise ValueError(f"two scenarios are called {function.__name__}")
    SCENARIOS[function.__name__] = function
    return function


async def run(name, function, places):
    async with places:
        began = time.monotonic()
        stage = None
        try:
            async with asyncio.timeout(LONGEST):
                stage = await asyncio.to_thread(Stage)
                if inspect.iscoroutinefunction(function):
                    await function(stage)
                else:
                    await asyncio.to_thread(function, stage)
                await asyncio.to_thread(stage.close)
            outcome = "ok"
        except Exception:
            outcome = "FAILED"
            print(f"--- {name}\n{traceback.format_exc()}", flush=True)
            if stage:
                stage.abandon()
        print(f"scenario {name} ... {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
        return outcome == "ok"


async def main():
    chosen = sys.argv[1:]
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4 * AT_ONCE))
    for file in sorted((pathlib.Path(__file__).parent / "scenarios").glob("*.py")):
        importlib.import_module(f"scenarios.{file.stem}")
    unknown = set(chosen) - set(SCENARIOS)
    if unknown:
        sys.exit(f"no such scenario: {', '.join(sorted(unknown))}")
    wanted = {name: function for name, function in SCENARIOS.items() if not chosen or name in chosen}
    places = asyncio.Semaphore(AT_ONCE)
    results = await asyncio.gather(*(run(name, function, places) for name, function in wanted.items()))
    print(f"suite result: {sum(results)} ok, {len(results) - sum(results)} failed", flush=True)
    return all(results)


if __name__ == "__main__":
    # `scenarios.*` import this file as `suite`: the one that runs must be the same.
    sys.modules["suite"] = sys.modules["__main__"]
    # The clients log every refusal that a scenario asks for.
    logging.disable(logging.CRITICAL)
    sys.exit(0 if asyncio.run(main()) else 1)
