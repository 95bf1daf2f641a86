"""Makes datasketches.txt: HyperLogLog states that Apache DataSketches wrote, and states of ours that it read.

    pip install datasketches==5.2.0
    cargo test -p farpool-statistics print_our_states -- --ignored --nocapture | python make_datasketches.py > datasketches.txt

A line: who wrote it (its form), lgK, distinct values, their kind, the library's estimate, the bytes.
"""

import sys

import datasketches

FORMS = ("HLL_4", "HLL_6", "HLL_8")
VALUES = {
    "integers": lambda i: i,
    "floats": lambda i: i / 3.0,
    "strings": lambda i: f"value {i}",
}
CASES = ((10, 0, "integers"), (10, 5, "floats"), (10, 60, "strings"), (10, 2000, "integers"), (4, 40, "strings"),
         (4, 1_000_000, "integers"))


def line(who: str, lg_k: int, count: int, kind: str, state: bytes) -> str:
    estimate = datasketches.hll_sketch.deserialize(state).get_estimate()
    return f"{who} {lg_k} {count} {kind} {estimate!r} {state.hex()}"


print("# Made by make_datasketches.py with datasketches 5.2.0")
for lg_k, count, kind in CASES:
    for form in FORMS:
        sketch = datasketches.hll_sketch(lg_k, getattr(datasketches.tgt_hll_type, form))
        for i in range(count):
            sketch.update(VALUES[kind](i))
        print(line(form, lg_k, count, kind, sketch.serialize_compact()))
        print(line(f"{form}-updatable", lg_k, count, kind, sketch.serialize_updatable()))
for ours in sys.stdin:
    if ours.startswith("farpool "):
        who, lg_k, count, kind, state = ours.split()
        print(line(who, int(lg_k), int(count), kind, bytes.fromhex(state)))
