#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Plots: data goes in as a file, figures come back as files.

    PYTHONPATH=client/python python3 examples/plots.py FOLDER [SERVER]

Each figure that the script shows becomes figure-N.png by itself; what it saves comes back when it is asked for.
"""
import sys

import cloche

DATA = "month,visits\n" + "".join(f"{m},{100 + 7 * m * (13 - m)}\n" for m in range(1, 13))
SCRIPT = """
import csv
import matplotlib.pyplot as plt

rows = list(csv.DictReader(open("visits.csv")))
months, visits = ([int(r[k]) for r in rows] for k in ("month", "visits"))
plt.plot(months, visits)
plt.title("Visits")
plt.savefig("visits.svg")
plt.show()
plt.bar(months, visits)
plt.show()
print("highest:", max(visits))
"""


def main() -> None:
    with cloche.Client(*sys.argv[2:]) as client:
        result = client.run(SCRIPT, files={"visits.csv": DATA}, artifacts=["*.svg"], timeout=60).check()
    print(result.stdout, end="")
    for path in result.save_artifacts(sys.argv[1]):
        print(path)


if __name__ == "__main__":
    main()
