#!/usr/bin/env python3
"""Formats the reports of measure.sh as tables. Prints them, or writes them into README.md.

    policies/tables.py FOLDER [NAME...]
    policies/tables.py FOLDER --update

With --update it replaces each table of README.md below a comment `<!-- NAME -->` by the table of the report NAME.
"""

import json
import pathlib
import sys

# Policy whose parameters the tables omit. Its variants differ only in the parameter for fetches.
WITHOUT_PARAMETERS = "mooncake-alg1"


def number(value, digits=2):
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.{digits}f}"


def share(value):
    return "-" if value is None else f"{100 * value:.1f}"


def short(policy):
    return policy.split("={")[0] if policy.startswith(WITHOUT_PARAMETERS) else policy


def rows(report):
    """Returns the rows of each policy by speed."""
    policies = {}
    for row in report["rows"]:
        policies.setdefault(row["policy"], {})[row["speed"]] = row
    return policies


def mean(row):
    return row["ttft-s"]["mean"]


def table(report, learned):
    """Returns the lines of a report's table. `learned` is the report of the same load with learned costs, or None."""
    policies = rows(report)
    of_learned = {short(policy): by_speed for policy, by_speed in rows(learned).items()} if learned else {}
    speeds = sorted({row["speed"] for row in report["rows"]})
    # The other columns are for the highest speed of at most 2.
    at = max(speed for speed in speeds if speed <= 2)
    decodes = not report["setting"]["prefill-only"]
    head = ["policy", "TTFT " + " / ".join(f"x{speed:g}" for speed in speeds), "in 5 / 30 s, %", "p99 / max, s"]
    head += ["effective, %"] if decodes else []
    head += ["refused, %", "cached, %", "fairness"]
    head += ["learned"] if learned else []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for policy, by_speed in sorted(policies.items(), key=lambda item: mean(item[1][at]) or 1e9):
        row = by_speed[at]
        parts = row["breakdown"]
        cells = [
            short(policy),
            " / ".join(number(mean(by_speed[speed])) for speed in speeds),
            f"{share(row['within-5-s'])} / {share(row['within-ttft'])}",
            f"{number(row['ttft-s']['p99'])} / {number(row['ttft-s']['max'])}",
        ]
        cells += [share(row["effective"])] if decodes else []
        cells += [
            share(sum(parts["refusals"].values())),
            share(row["block-hit-ratio"]),
            number(parts["fairness"]["jain"], 3),
        ]
        if learned:
            cells.append(number(mean(of_learned[short(policy)][at])) if short(policy) in of_learned else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def update(readme, tables):
    """Replaces the tables below comments that have a report's name."""
    lines, name, is_replaced = [], None, False
    for line in readme.read_text().splitlines():
        if line.startswith("<!-- ") and line[5:-4] in tables:
            name, is_replaced = line[5:-4], False
        elif name and line.startswith("|"):
            lines += [] if is_replaced else tables[name]
            is_replaced = True
            continue
        elif is_replaced:
            name = None
        lines.append(line)
    readme.write_text("\n".join(lines) + "\n")


def main():
    folder, *names = sys.argv[1:]
    tables = {}
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        sibling = path.with_name(path.stem.removesuffix("-exact") + "-learnt.json")
        learned = json.loads(sibling.read_text()) if path.stem.endswith("-exact") and sibling.exists() else None
        tables[path.stem] = table(json.loads(path.read_text()), learned)
    if names == ["--update"]:
        return update(pathlib.Path(__file__).with_name("README.md"), tables)
    for name in names or tables:
        print(name, *tables[name], "", sep="\n")


main()
