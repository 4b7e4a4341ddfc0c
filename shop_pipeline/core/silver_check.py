"""Silver against the days that were merged into it: is each key there once, and is every row of each day accounted for?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from shop_pipeline.core.duck import identifier
from shop_pipeline.core.silver_changes import Comparison, newest

EXAMPLES = 5


@dataclass(frozen=True)
class Account:
    """What became of a day's rows: `kept` by silver, `repeated` (a later row of the day has the key), `older` (another day's row
    is newer: the guard refused it), `wrong` (silver has none, an older one, or other values). `surplus`: silver's rows of the
    day that the day does not have. Amounts are those of the first decimal column, None where there is none.
    """

    rows: int = 0
    kept: int = 0
    repeated: int = 0
    older: int = 0
    wrong: int = 0
    surplus: int = 0
    amount: Decimal | None = None
    amount_kept: Decimal | None = None
    older_examples: tuple[str, ...] = ()
    wrong_examples: tuple[str, ...] = ()

    @property
    def reconciles(self) -> bool:
        """Whether every row is accounted for."""
        return self.wrong == self.surplus == 0

    @property
    def line(self) -> str:
        """The account in a line."""
        said = f"{self.rows} rows = {self.kept} in silver + {self.repeated} repeated + {self.older} older than another day's"
        return said if self.reconciles else f"{said} + {self.wrong} wrong; {self.surplus} in silver that the day does not have"


def accounts(found: Comparison, days: Sequence[date]) -> dict[date, Account]:
    """What became of each day's rows, by silver's rows in the table `present`."""
    con, key, contract = found.con, found.key, found.contract
    order = ", ".join(f"{name} DESC" for name in newest().split(", "))
    same = " AND ".join(
        f"p.{identifier(name)} IS NOT DISTINCT FROM a.{identifier(name)}" for name in found.names if name != "_loaded_at"
    )
    amount = next((identifier(column.name) for column in contract.columns if column.type.startswith("DECIMAL")), "NULL")
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE account AS
        SELECT a.{key}, a._source_day AS day, a._source_version, a._source_seq, a.{amount} AS amount,
               p.{key} AS silver, p._source_day AS silver_day, p._source_seq AS silver_seq,
               CASE WHEN a.turn > 1 THEN 'repeated' WHEN {same} THEN 'kept'
                    WHEN p._source_day <> a._source_day AND ({newest("p")}) > ({newest("a")}) THEN 'older' ELSE 'wrong' END AS fate
        FROM (SELECT *, 1 AS turn FROM arrived ANTI JOIN repeated USING ({key}) UNION ALL
              SELECT *, row_number() OVER (PARTITION BY {key}, _source_day ORDER BY {order})
              FROM arrived SEMI JOIN repeated USING ({key})) a
        LEFT JOIN (FROM present QUALIFY row_number() OVER (PARTITION BY {key}) = 1) p USING ({key})
        """.replace("a.NULL", "CAST(NULL AS DECIMAL(18, 2))")
    )
    sums = con.execute(
        """
        SELECT day, count(*), count(*) FILTER (fate = 'kept'), count(*) FILTER (fate = 'repeated'),
               count(*) FILTER (fate = 'older'), count(*) FILTER (fate = 'wrong'),
               sum(amount), sum(amount) FILTER (fate = 'kept')
        FROM account GROUP BY day
        """
    ).fetchall()
    surplus = dict(
        con.execute(
            f"""
            SELECT p._source_day, count(*) FROM present p
            ANTI JOIN (FROM account WHERE fate = 'kept') a ON a.{key} = p.{key} AND a.day = p._source_day
            WHERE p._source_day IN ({found.days}) GROUP BY 1
            """
        ).fetchall()
    )
    older, wrong = (_examples(found, fate) for fate in ("older", "wrong"))
    made = {
        day: Account(
            rows,
            kept,
            again,
            older_rows,
            wrong_rows,
            surplus.get(day, 0),
            total,
            in_silver,
            tuple(older.get(day, ())),
            tuple(wrong.get(day, ())),
        )
        for day, rows, kept, again, older_rows, wrong_rows, total, in_silver in sums
    }
    return {day: made.get(day) or Account(surplus=surplus.get(day, 0)) for day in days}


def _examples(found: Comparison, fate: str) -> Mapping[date, list[str]]:
    """The first rows of each day with this fate, in words."""
    key = found.contract.key
    rows = found.con.execute(
        f"""
        SELECT day, {found.key}, _source_seq, silver_day, silver_seq FROM account WHERE fate = ?
        QUALIFY row_number() OVER (PARTITION BY day ORDER BY {found.key}, _source_seq) <= {EXAMPLES} ORDER BY ALL
        """,
        [fate],
    ).fetchall()
    said: dict[date, list[str]] = {}
    for day, value, seq, silver_day, silver_seq in rows:
        there = "silver has none" if silver_day is None else f"silver has {silver_seq} of {silver_day}"
        said.setdefault(day, []).append(f"{key} {value} at {seq} ({there})")
    return said


def twice_in_silver(found: Comparison) -> dict[date, list[str]]:
    """The keys of each day that silver has more than once, in words; only days that have any."""
    rows = found.con.execute(
        f"""
        WITH twice AS (SELECT {found.key}, count(*) AS times FROM present GROUP BY 1 HAVING count(*) > 1),
             concerned AS (SELECT {found.key}, _source_day FROM arrived UNION
                           SELECT {found.key}, _source_day FROM present WHERE _source_day IN ({found.days}))
        SELECT _source_day, {found.key}, times FROM concerned JOIN twice USING ({found.key}) ORDER BY ALL
        """
    ).fetchall()
    said: dict[date, list[str]] = {}
    for day, value, times in rows:
        said.setdefault(day, []).append(f"{found.contract.key} {value} ({times} times)")
    return said
