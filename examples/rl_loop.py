#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A reinforcement learning loop: programs are sampled, run, and rewarded by the share of right answers.

    PYTHONPATH=client/python python3 examples/rl_loop.py [SERVER]

The policy here is a table of preferences over a few ways to write `largest(numbers)`; in its place stands your model.
The answers are judged out here, where no program can reward itself.
"""
import asyncio
import json
import math
import random
import sys

import cloche

WAYS = ["return numbers[0]", "return sorted(numbers)[0]", "return max(numbers", "return max(numbers)", "while 1: pass"]
PROGRAM = "def largest(numbers):\n    {}\nimport json, sys\nprint([largest(n) for n in json.load(sys.stdin)])\n"
QUESTIONS = [random.Random(k).sample(range(100), 5) for k in range(20)]
ANSWERS = [max(q) for q in QUESTIONS]


def reward(outcome: cloche.Outcome) -> float:
    """A crash, an endless loop and nonsense are worth nothing; a run that was lost says nothing about the program."""
    if isinstance(outcome, cloche.ClocheError) or outcome.status == "internal_error":
        raise SystemExit(f"no result: {outcome}")
    try:
        given = json.loads(outcome.stdout) if outcome.ok else []
    except ValueError:
        given = []
    right: int = sum(g == a for g, a in zip(given, ANSWERS)) if isinstance(given, list) else 0
    return right / len(ANSWERS)


async def main() -> None:
    preference, rng = [0.0] * len(WAYS), random.Random(7)
    async with cloche.AsyncClient(*sys.argv[1:]) as client:
        for step in range(6):
            chosen = rng.choices(range(len(WAYS)), [math.exp(p) for p in preference], k=16)
            requests = [{"script_content": PROGRAM.format(WAYS[w]), "stdin": json.dumps(QUESTIONS),
                         "limits": {"cpu_seconds": 0.5}} for w in chosen]
            rewards = [0.0] * len(chosen)
            async for n, outcome in client.as_completed(requests, errors="return"):
                rewards[n] = reward(outcome)
            mean = sum(rewards) / len(rewards)
            for way, r in zip(chosen, rewards):
                preference[way] += r - mean
            print(f"step {step}: mean reward {mean:.2f}", flush=True)
    print("best:", WAYS[preference.index(max(preference))])


if __name__ == "__main__":
    asyncio.run(main())
