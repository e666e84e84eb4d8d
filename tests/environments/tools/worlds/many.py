"""A domain file with any number of tools."""

import json
from pathlib import Path

from tests.domains import inns

POOLS = ("train", "test", "rewrite_train", "rewrite_test")


def write(file: Path, num_tools: int) -> Path:
    """Write a domain with a goal for each tool; return the file."""
    document = inns.good()
    document["name"] = "many"
    document["types"] = {
        "city": {
            "kind": "entity",
            "train": ["Ur", "Ub"],
            "test": ["Uz", "Uc"],
            "shift": ["Ux", "Ud"],
        },
        "hour": {"kind": "number", "minimum": 1, "maximum": 24},
    }
    document["tools"] = [
        inns.tool(f"look_{n}", {"city": "city"}, {"hour": "hour"})
        for n in range(num_tools)
    ]
    document["goals"] = [
        {
            "name": f"goal_{n}",
            "constants": {"city": "city"},
            "steps": [{"tool": f"look_{n}", "arguments": {"city": "$city"}}],
            "answer": "#0.hour",
            "phrases": {pool: [f"{pool} hour {n} of {{city}}"] for pool in POOLS},
        }
        for n in range(num_tools)
    ]
    file.write_text(json.dumps(document), "utf-8")
    return file
