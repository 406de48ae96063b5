"""Runs the scenarios, many at once: they mostly wait. `python suite.py FOLDER [--fast] [NAME ...]`

FOLDER has `stage.py` and the scenarios of one broker.
"""

import argparse
import asyncio
import importlib
import inspect
import pathlib
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, sys.argv[1])
from stage import AT_ONCE, LONGEST, Stage

SCENARIOS = {}


def scenario(function=None, *, slow=False, since=None, why=None):
    """A scenario: `def name(stage)` or `async def name(stage)`.

    A slow one waits for real time, and is left out of the fast part. One that an older client cannot run says since which
    version it can, and why it could not before.
    """

    def register(function):
        if function.__name__ in SCENARIOS:
            raise ValueError(f"two scenarios are called {function.__name__}")
        lacking = f"before {'.'.join(map(str, since))} {why}" if since and Stage.VERSION < since else None
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
                if inspect.iscoroutinefunction(function):
                    await function(stage)
                else:
                    await asyncio.to_thread(function, stage)
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
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--fast", action="store_true", help="without those that wait for real time")
    arguments.add_argument("names", nargs="*")
    chosen = arguments.parse_args()

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4 * AT_ONCE))
    for file in sorted((chosen.folder / "scenarios").glob("*.py")):
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
    sys.exit(0 if asyncio.run(main()) else 1)
