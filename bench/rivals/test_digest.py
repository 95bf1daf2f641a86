"""The digest that `bench/src/digest.rs` records in its tests: run in the rivals' environment."""

import pyarrow as pa

from digest import digest

ROWS = pa.table({"x": [1, -2, 1 << 40], "y": ["", "eight ch", "twelve chars"]})

print(*digest(ROWS))
