"""Load a range of run dates into orders_daily, with its checks, in one run of Dagster's: `shop backfill` without what it feeds.

python -m bench.load_range FIRST LAST
"""

import sys

from shop_pipeline.cli import _keys, _Shop


def main(first: str, last: str) -> None:
    """As `shop load` does with one."""
    keys, shop = _keys(first, last), _Shop()
    shop.prepare_spark(keys)
    bad = [report.sentence for report in shop.runs.load(shop.pipeline.load, keys) if not report.ok]
    if bad:
        sys.exit(f"it did something else: {bad[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
