"""Makes a Markdown table and an SVG chart of the measurements."""

import argparse
import json
import statistics
from html import escape
from pathlib import Path

US = "cdi-importer"
BAR, GAP, LEFT, WIDTH = 18, 26, 330, 1000
"""Sizes in the chart in pixels: height of a bar, space between cases, width of the names, total width."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    parser.add_argument("--chart", type=Path, help="where the chart goes")
    parser.add_argument("--summary", action="store_true", help="only us and the fastest of the others")
    options = parser.parse_args()
    result = json.loads(options.result.read_text())
    print(headline(result))
    print()
    print((summary if options.summary else table)(result["cases"]))
    if options.chart:
        options.chart.write_text(chart(result))


def headline(result: dict) -> str:
    machine = result["machine"]
    return (
        f"{machine['date']}, commit {machine['commit']}: {machine['cpus']} CPUs ({machine['cpu']}), "
        f"{machine['memory_gib']} GiB, kernel {machine['kernel']}, medians of {result['pairs']} alternating rounds"
    )


def median(costs: list[dict], field: str) -> float:
    return statistics.median(cost[field] for cost in costs)


def table(cases: dict[str, dict[str, list[dict]]]) -> str:
    """Returns a row for each program. The ratios are ours to theirs, as medians of the rounds."""
    lines = [
        "| image and target | way | wall s | CPU s | RSS MiB | written MB | temporary MB | our wall | our CPU |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, by_way in cases.items():
        ours = by_way[US]
        for way, costs in by_way.items():
            same = way == US
            cells = [
                name if same else "",
                f"**{way}**" if same else way,
                f"{median(costs, 'wall'):.2f}",
                f"{median(costs, 'cpu'):.2f}",
                f"{median(costs, 'rss') / 2**20:.0f}",
                f"{median(costs, 'written') / 1e6:.0f}",
                f"{median(costs, 'temporary') / 1e6:.0f}",
                "" if same else f"{ratio(ours, costs, 'wall'):.2f}×",
                "" if same else f"{ratio(ours, costs, 'cpu'):.2f}×",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(cases: dict[str, dict[str, list[dict]]]) -> str:
    """Returns a row for each case: our importer against the fastest peer."""
    lines = [
        "| image and target | cdi-importer | peak memory | fastest alternative | | ours to theirs |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for name, by_way in cases.items():
        ours = by_way[US]
        peers = {way: costs for way, costs in by_way.items() if way != US and not way.startswith("limit")}
        way, theirs = min(peers.items(), key=lambda item: median(item[1], "wall"))
        cells = [
            name,
            f"{median(ours, 'wall'):.1f} s, {median(ours, 'cpu'):.1f} CPU s",
            f"{median(ours, 'rss') / 2**20:.0f} MiB",
            way,
            f"{median(theirs, 'wall'):.1f} s, {median(theirs, 'cpu'):.1f} CPU s",
            f"**{ratio(ours, theirs, 'wall'):.2f}×** time, {ratio(ours, theirs, 'cpu'):.2f}× CPU",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratio(ours: list[dict], theirs: list[dict], field: str) -> float:
    """Returns the median of the rounds' ratios: temporary slowness of the machine affects both sides of a round."""
    return statistics.median(a[field] / max(b[field], 0.01) for a, b in zip(ours, theirs))


def chart(result: dict) -> str:
    """Returns bars of wall time, each with the CPU time below it in a second shade."""
    cases = result["cases"]
    longest = max(median(costs, field) for ways in cases.values() for costs in ways.values() for field in ("wall", "cpu"))
    scale = (WIDTH - LEFT - 60) / longest
    parts, y = [], 60
    for name, ways in cases.items():
        parts.append(f'<text x="8" y="{y + 13}" class="case">{escape(name)}</text>')
        for way, costs in sorted(ways.items(), key=lambda item: item[0] != US):
            parts.append(bar(way, median(costs, "wall"), median(costs, "cpu"), scale, y))
            y += BAR + 4
        y += GAP - 4
    return SVG.format(width=WIDTH, height=y, title=escape(headline(result)), bars="\n".join(parts))


def bar(way: str, wall: float, cpu: float, scale: float, y: int) -> str:
    kind = "us" if way == US else "limit" if way.startswith("limit") else "peer"
    label = way.removeprefix("limit: ")
    return (
        f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>'
        f'<rect x="{LEFT}" y="{y}" width="{wall * scale:.1f}" height="{BAR - 7}" class="{kind}"/>'
        f'<rect x="{LEFT}" y="{y + BAR - 6}" width="{cpu * scale:.1f}" height="4" class="{kind} cpu"/>'
        f'<text x="{LEFT + max(wall, cpu) * scale + 6:.1f}" y="{y + 12}">{wall:.1f} s</text>'
    )


SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">
<style>
.case {{ font-weight: bold; }} .us {{ fill: #1b7f3b; }} .peer {{ fill: #6b7a90; }} .limit {{ fill: #c9ced6; }}
.cpu {{ opacity: 0.55; }} svg {{ background: white; }}
</style>
<text x="8" y="20" font-size="15" font-weight="bold">Time to a complete disk: wall (thick), CPU (thin)</text>
<text x="8" y="40" fill="#555">{title}</text>
{bars}
</svg>
"""

if __name__ == "__main__":
    main()
