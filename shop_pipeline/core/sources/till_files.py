"""The till's files: one CSV a day, `<landing>/orders/<day>.csv`, UTF-8 with a header line."""

import codecs
import csv
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import BinaryIO

import duckdb
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shop_pipeline.core.batch import read_by_duckdb
from shop_pipeline.core.contract import Contract, NewColumns
from shop_pipeline.core.duck import connect, identifier, quoted
from shop_pipeline.core.errors import DayRefused, ShopError, SourceUnavailable
from shop_pipeline.core.sources import BYTES, Drift, Record, Split
from shop_pipeline.core.spark import SPLIT_BYTES

CHUNK = 16 * 1024 * 1024
# DuckDB reads a file in parts that hold sixteen of the longest lines it is told of, each by a thread. Its own default.
LONG_LINE = 2 * 1024 * 1024
_LONGEST_LINE = 100_000_000
# A quoted field that starts after a comma or line start and ends before one: what RFC 4180 allows, and nothing else.
_QUOTED_FIELD = re.compile(rb'(?<![^,\n])"(?:[^"]|"")*"(?=,|\r?\n|\r?\Z)')
# Spark passes over a line that has nothing else, such as the Ctrl-Z at the end of a DOS file; so do the others.
_BLANK = re.compile(rb'[\x00-\x20]*("[\x00-\x20]*")?[\x00-\x20]*')
_LONE_CR = re.compile(rb"\r(?!\n|\Z)")
# Stands for "this field was not there" where an empty field is something else; no text of a till contains it.
_ABSENT = "\x02absent\x02"
# Added to a record's number, for ten digits after the first.
_TEN_DIGITS = 10_000_000_000
# A split's place as one number: its day, and where it starts in a file that is shorter than this.
_EPOCH, _LONGEST = date(1970, 1, 1), 2**44
# A header's name that can become a column of the table, in Delta, Spark and DuckDB alike.
_COLUMN_NAME = re.compile(r"[a-z_][a-z0-9_]{0,99}")
# Names that rows carry on their way, and those that Spark and Delta keep for themselves.
_RESERVED = re.compile(
    r"_(file|split|position|malformed|record|broken|typed_.*|metadata|change_type|commit_version|commit_timestamp)"
)


# What tells one state of a file from another without reading it: inode, size, time of last change in nanoseconds.
Mark = tuple[int, int, int]


@dataclass(frozen=True)
class Text:
    """What the readers must know of a file's text.

    `multiline`: a record may go on in the next line. `long`: a line has more than LONG_LINE bytes. `plain`: the fields of a line
    are what stands between its commas, no quote or other sign has a meaning. `lines`: how many lines after the header begin in
    each part of SPLIT_BYTES; a line begins after the byte before it, and in that byte's part.
    """

    multiline: bool
    long: bool
    plain: bool
    lines: tuple[int, ...]


@dataclass(frozen=True)
class TillFile:
    """A day's file that can be read: its header in the file's order, and its text."""

    day: date
    path: Path
    header: tuple[str, ...]
    drift: Drift
    text: Text
    seen: Mark


@dataclass(frozen=True)
class TillFiles:
    """The till's landing folder. `contract` says which columns a header must name."""

    landing: Path
    contract: Contract

    def path(self, day: date) -> Path:
        """The file of a day."""
        return self.landing / "orders" / f"{day.isoformat()}.csv"

    def open(self, days: Sequence[date]) -> "OpenTillFiles":
        """Look at the files of these days: are they there, UTF-8, well quoted, and do their headers fit."""
        files: dict[date, TillFile] = {}
        refused: dict[date, str] = {}
        missing: set[date] = set()
        for day in days:
            try:
                files[day] = self._inspect(day)
            except FileNotFoundError:
                missing.add(day)
                refused[day] = f"{shown(self.path(day))} is not there. Put the file there"
            except DayRefused as problem:
                refused[day] = str(problem)
        return OpenTillFiles(self.contract, files, refused, frozenset(missing), {d: self.path(d) for d in days})

    def listing(self) -> tuple[dict[date, Mark], list[str]]:
        """The days that have a file, each with the file's mark, and what else lies there and is no day's file (hidden apart).

        Raises:
            SourceUnavailable: the folder is there and cannot be listed.
        """
        folder, marks, odd = self.landing / "orders", {}, []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    day = _day_of(entry.name)
                    seen = _stat(entry) if day is not None else None
                    if day is not None and seen is not None and stat.S_ISREG(seen.st_mode):
                        marks[day] = fingerprint_of_stat(seen)
                    elif not entry.name.startswith(".") and (day is None or os.path.lexists(entry.path)):
                        odd.append(entry.name)
        except FileNotFoundError:
            return {}, []
        except OSError as error:
            raise SourceUnavailable(f"{shown(folder)} cannot be listed ({error.strerror}). Make it readable.") from None
        return marks, sorted(odd)

    def ends_with_a_line(self, day: date) -> bool:
        """Whether the last line of a day's file has its end, as that of a file that is still written often has not."""
        try:
            with self.path(day).open("rb") as handle:
                size = handle.seek(0, os.SEEK_END)
                handle.seek(max(0, size - 1))
                return handle.read(1) == b"\n"
        except OSError:
            return False

    def missing(self, days: Sequence[date]) -> frozenset[date]:
        """The days without a file."""
        return frozenset(day for day in days if not os.path.lexists(self.path(day)))

    def fingerprints(self, days: Sequence[date]) -> Mapping[date, str]:
        """By DuckDB's reading of the files, or by their bytes where they cannot be read as orders."""
        opened = self.open(days)
        there = [day for day in days if day not in opened.refused]
        readings = read_by_duckdb(connect(), self.contract, opened, there) if there else {}
        return {**{day: each.fingerprint for day, each in readings.items()}, **opened.fingerprints(list(opened.refused))}

    def size(self, days: Sequence[date]) -> int:
        """The size of the files that are there, in bytes."""
        found = 0
        for day in days:
            with suppress(OSError):
                found += self.path(day).stat().st_size
        return found

    def _inspect(self, day: date) -> TillFile:
        path = self.path(day)
        if path.is_symlink() and not path.resolve().is_relative_to(self.landing.resolve()):
            raise DayRefused(f"{shown(path)} is a link to a file outside {shown(self.landing)}. Put the file itself there")
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "a pipe or device"
            raise DayRefused(f"{shown(path)} is {what}, not a file. Put one file there")
        try:
            handle = path.open("rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DayRefused(f"{shown(path)} cannot be read ({error.strerror}). Make it readable") from None
        with handle:
            seen = fingerprint_of_stat(os.fstat(handle.fileno()))
            first = handle.read(CHUNK)
            handle.seek(0)
            if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise DayRefused(f"{shown(path)} is not UTF-8: a UTF-16 mark at byte 0. Save it as UTF-8")
            if first in (b"", codecs.BOM_UTF8):
                raise DayRefused(f"{shown(path)} has no header: it is empty. Put the till's file there")
            text = _check_text(handle, path)
        header = self._header(first, path)
        return TillFile(day, path, header, self._drift(header), text, seen)

    def _header(self, first: bytes, path: Path) -> tuple[str, ...]:
        text = first.removeprefix(codecs.BOM_UTF8).split(b"\n", 1)[0].rstrip(b"\r")
        if not text.strip():
            raise DayRefused(f"{shown(path)} has no header: its first line is empty. Put the till's file there")
        if text.count(b'"') % 2:
            raise DayRefused(f"{shown(path)}, line 1: a name in the header goes on in the next line. Mend the header")
        found = [name.strip() for name in next(csv.reader([text.decode()], strict=False))]
        wanted = self.contract.names
        folded = tuple(name.lower() for name in found)
        surplus = [name for name in folded if name not in wanted]
        faults = [
            ("repeats", sorted({name for name in folded if folded.count(name) > 1})),
            ("lacks", [name for name in wanted if name not in folded]),
        ]
        if self.contract.new_columns is NewColumns.FAIL:
            faults.append(("has the unknown", surplus))
        elif self.contract.new_columns is NewColumns.ADD:
            own = {name for name, _ in self.contract.table_columns}
            faults.append(
                (
                    "uses, for a column of its own, the pipeline's",
                    [name for name in surplus if name in own or _RESERVED.fullmatch(name)],
                )
            )
            faults.append(
                ("cannot name, but by small letters, digits and _, the new", [n for n in surplus if not _COLUMN_NAME.fullmatch(n)])
            )
        for what, names in faults:
            if names:
                raise DayRefused(
                    f"{shown(path)}, line 1: the header {what} {_columns(names)}; "
                    f"expected {','.join(wanted)}, found {','.join(found)[:200]!r}. Mend the header"
                )
        if self.contract.exact_header and folded != wanted:
            raise DayRefused(
                f"{shown(path)}, line 1: the header is not exactly the contract's; "
                f"expected {','.join(wanted)}, found {','.join(found)[:200]!r}. Mend the header"
            )
        return folded

    def _drift(self, header: tuple[str, ...]) -> Drift:
        surplus = tuple(sorted(name for name in header if name not in self.contract.names))
        known = tuple(name for name in header if name in self.contract.names)
        add = self.contract.new_columns is NewColumns.ADD
        return Drift(surplus if add else (), () if add else surplus, known != self.contract.names)


@dataclass(frozen=True)
class OpenTillFiles:
    """The files of some days; see OpenSource."""

    contract: Contract
    files: Mapping[date, TillFile]
    refused: Mapping[date, str]
    missing: frozenset[date]
    paths: Mapping[date, Path]
    noun: str = "file"

    def close(self) -> None:
        """Nothing is held."""

    def size(self, days: Sequence[date]) -> int | None:
        """How many bytes the files are."""
        return sum(self.files[day].seen[1] for day in days)

    def explain(self, error: Exception) -> ShopError | None:
        """Engines' errors about files are told as they are."""
        return None

    def name(self, day: date) -> str:
        """The path of a day's file, as short as it is unambiguous here."""
        return shown(self.paths[day])

    def drift(self, day: date) -> Drift:
        """How the header of a day differs from the contract's columns."""
        return self.files[day].drift

    def fields(self, day: date) -> int:
        """How many names the header has."""
        return len(self.files[day].header)

    def new_columns(self, days: Sequence[date]) -> tuple[str, ...]:
        """The columns that the headers of these days bring beyond the contract's."""
        return tuple(sorted({name for day in days for name in self.files[day].drift.added}))

    def _groups(self, days: Sequence[date]) -> Mapping[tuple[tuple[str, ...], bool], list[TillFile]]:
        groups: dict[tuple[tuple[str, ...], bool], list[TillFile]] = {}
        for day in days:
            file = self.files[day]
            groups.setdefault((file.header, file.text.multiline), []).append(file)
        return groups

    def rows_in_spark(self, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The records as text, columns by name; `_split` and `_position` are where Spark read each one."""
        frames = [self._group_in_spark(spark, *key, files) for key, files in self._groups(days).items()]
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.unionByName(frame, allowMissingColumns=True)
        return rows

    def _group_in_spark(
        self, spark: SparkSession, header: tuple[str, ...], multiline: bool, files: Sequence[TillFile]
    ) -> DataFrame:
        fields = [f"_field{n}" for n in range(len(header))]
        raw = (
            spark.read.option("header", True)
            .option("multiLine", multiline)
            .option("lineSep", "\n")
            .option("quote", '"')
            .option("escape", '"')
            .option("comment", "\uffff")
            .option("encoding", "UTF-8")
            .option("mode", "PERMISSIVE")
            .option("columnNameOfCorruptRecord", "_unfitting")
            .option("columnPruning", False)
            .option("enforceSchema", True)
            .option("ignoreLeadingWhiteSpace", False)
            .option("ignoreTrailingWhiteSpace", False)
            .schema(", ".join(f"{name} STRING" for name in [*fields, "_unfitting"]))
            .csv([_literal_for_spark(str(file.path)) for file in files])
        )
        # Lines end in \n for Spark, so that a lone \r in a quoted field is text; the \r of a \r\n is taken off here.
        last = F.col(fields[-1])
        texts = {name: F.col(fields[n]) for n, name in enumerate(header)}
        texts[header[-1]] = F.when(last.endswith("\r"), F.expr(f"left({fields[-1]}, length({fields[-1]}) - 1)")).otherwise(last)
        unfitting = F.col("_unfitting").isNotNull()
        blank = unfitting & F.col("_unfitting").rlike(rf"^{_BLANK.pattern.decode()}\z")
        return raw.where(~blank).select(
            *[texts[name].alias(name) for name in self.contract.names],
            # A column of no known type: nothing in it is NULL, as it is for the days that do not have it.
            *[F.nullif(texts[name], F.lit("")).alias(name) for name in files[0].drift.added],
            (F.lit(files[0].day) if len(files) == 1 else F.expr("to_date(left(_metadata.file_name, 10))")).alias("order_date"),
            unfitting.alias("_malformed"),
            F.col("_metadata.file_block_start").alias("_split"),
            F.monotonically_increasing_id().alias("_position"),
        )

    def known_splits(self, records: Mapping[date, int]) -> list[Split] | None:
        """Of one big file without line ends in quotes: Spark cuts it each SPLIT_BYTES."""
        if len(records) != 1:
            return None
        ((day, expected),) = records.items()
        file = self.files[day]
        # Spark cuts smaller ones into smaller parts.
        if file.text.multiline or file.seen[1] < 2 * SPLIT_BYTES:
            return None
        lines = file.text.lines
        # Blank lines are no records, and make the sums differ.
        return [Split(day, n * SPLIT_BYTES, 0, count) for n, count in enumerate(lines)] if sum(lines) == expected else None

    def rows_of_known_splits(self, spark: SparkSession, day: date) -> DataFrame:
        """Where nothing in the file is quoted its lines are cut at their commas: Spark's CSV reader takes several times as long."""
        file = self.files[day]
        if not file.text.plain:
            return self.rows_in_spark(spark, [day])
        line = F.col("value")
        whole = F.when(line.endswith("\r"), F.expr("left(value, length(value) - 1)")).otherwise(line)
        lines = (
            spark.read.option("lineSep", "\n")
            .text(_literal_for_spark(str(file.path)))
            .select(
                F.split(whole, ",", -1).alias("_fields"),
                F.col("_metadata.file_block_start").alias("_split"),
                F.monotonically_increasing_id().alias("_position"),
            )
            # The header: the first line of the first split, and so of its task, for each of these splits has a task of its own.
            .where("_position <> 0 OR _split <> 0")
        )
        sent = {name: F.nullif(F.get("_fields", F.lit(n)), F.lit("")) for n, name in enumerate(file.header)}
        return lines.select(
            *[sent[name].alias(name) for name in (*self.contract.names, *file.drift.added)],
            F.lit(day).alias("order_date"),
            (F.size("_fields") != len(file.header)).alias("_malformed"),
            "_split",
            F.when(F.col("_split") == 0, F.col("_position") - 1).otherwise(F.col("_position")).alias("_position"),
        )

    def with_seq(self, rows: DataFrame, splits: Sequence[Split]) -> DataFrame:
        """`rows` with `_source_seq`: file name and record number, the same on every rerun.

        Records are numbered in the file's order: the records of the splits before, then the place in the split.
        """
        shift: list[Column] = []
        before: dict[date, int] = {}
        for split in sorted(splits, key=lambda each: (each.day, each.start)):
            place = (split.day - _EPOCH).days * _LONGEST + split.start
            shift += [F.lit(place), F.lit(before.get(split.day, 0) - split.first_position + 1)]
            before[split.day] = before.get(split.day, 0) + split.records
        number = F.col("_position") + F.coalesce(
            F.try_element_at(F.create_map(*shift), F.unix_date("order_date") * F.lit(_LONGEST) + F.col("_split")),
            F.raise_error(F.lit("a file was cut otherwise on second reading")).cast("bigint"),
        )
        digits = F.substring((number + _TEN_DIGITS).cast("string"), 2, 10)
        return rows.withColumn("_source_seq", F.concat(F.col("order_date").cast("string"), F.lit(".csv#"), digits))

    def rows_in_duckdb(self, con: duckdb.DuckDBPyConnection, days: Sequence[date]) -> str:
        """The same rows as a query. DuckDB shares no code with Spark's reader; the facts found on opening guide both."""
        return " UNION ALL BY NAME ".join(self._group_in_duckdb(*key, files) for key, files in self._groups(days).items())

    def _group_in_duckdb(self, header: tuple[str, ...], multiline: bool, files: Sequence[TillFile]) -> str:
        fields = [f"_field{n}" for n in range(len(header))]
        columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in [*fields, "_surplus"])
        paths = ", ".join(quoted(_literal_for_duckdb(str(file.path))) for file in files)
        longest = _LONGEST_LINE if multiline or any(file.text.long for file in files) else LONG_LINE
        # Not strict, or a file with both kinds of line end is refused; a field too many lands in _surplus, and one that
        # is not there is NULL, so that the number of fields is known all the same.
        reader = (
            f"read_csv([{paths}], auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', "
            f"comment = '', nullstr = {quoted(_ABSENT)}, null_padding = true, strict_mode = false, encoding = 'utf-8', "
            f"parallel = {str(not multiline).lower()}, max_line_size = {longest}, filename = true, "
            f"columns = {{{columns}}})"
        )
        columns_sent = [f"{fields[header.index(name)]} AS {identifier(name)}" for name in self.contract.names]
        columns_sent += [f"nullif({fields[header.index(name)]}, '') AS {identifier(name)}" for name in files[0].drift.added]
        texts = ", ".join(columns_sent)
        day = f"CAST(left(right(filename, {len('2026-09-01.csv')}), 10) AS DATE)"
        blank = f"regexp_full_match({fields[0]}, '[\\x00-\\x20]*') AND {fields[1]} IS NULL" if len(fields) > 1 else "false"
        return (
            f"SELECT {texts}, {day} AS order_date, "
            f"({fields[-1]} IS NULL OR _surplus IS NOT NULL) AS _malformed, "
            f"row_number() OVER (PARTITION BY filename) AS _record "
            f"FROM {reader} WHERE NOT ({blank})"
        )

    def records(self, day: date, numbers: Sequence[int]) -> Mapping[int, Record]:
        """Some records as they stand in the file, found by reading it up to the last of them."""
        wanted = set(numbers)
        found: dict[int, Record] = {}
        if not wanted:
            return found
        for record in _records(self.files[day].path):
            if record.number in wanted:
                found[record.number] = record
                if len(found) == len(wanted):
                    break
        return found

    def fingerprints(self, days: Sequence[date]) -> Mapping[date, str]:
        """Of files that cannot be read as orders, by their bytes; of the others DuckDB's reading has them."""
        found = {}
        for day in days:
            path = self.paths[day]
            # A link may lead outside, and a pipe has no end.
            if day in self.refused and path.is_file() and not path.is_symlink():
                with suppress(OSError), path.open("rb") as handle:
                    digest = hashlib.file_digest(handle, "sha256").hexdigest()[:16]
                    found[day] = f"{handle.tell()}:{digest}:{BYTES}"
        return found

    def remarks(self) -> list[str]:
        """None: each day has a file of its own."""
        return []

    def changed(self, days: Sequence[date]) -> Mapping[date, str]:
        """Days whose file was replaced or written to since it was opened."""
        sentences = {}
        for day in days:
            file = self.files[day]
            try:
                now = fingerprint_of_stat(file.path.stat())
            except OSError:
                now = None
            if now != file.seen:
                sentences[day] = f"{shown(file.path)} changed while it was loaded. Wait until it is complete"
        return sentences


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What a name in a folder leads to; None when that is nothing."""
    try:
        return entry.stat()
    except OSError:
        return None


def _day_of(name: str) -> date | None:
    """The day whose file has this name, None when it is no day's."""
    if len(name) != len("2026-09-01.csv") or not name.endswith(".csv"):
        return None
    try:
        day = date.fromisoformat(name[:-4])
    except ValueError:
        return None
    return day if name == f"{day}.csv" else None


def fingerprint_of_stat(seen: os.stat_result) -> Mark:
    """The mark of a file."""
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns)


def shown(path: Path) -> str:
    """A path for messages: relative when it lies below the working directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _columns(names: Sequence[str]) -> str:
    listed = ", ".join((name if name.isprintable() else repr(name)) or "(no name)" for name in names)
    return ("columns " if len(names) > 1 else "column ") + listed[:200]


def _literal_for_spark(path: str) -> str:
    """A path that Spark takes literally: a backslash before each sign of a pattern."""
    return re.sub(r"([\[\]{}*?\\^])", r"\\\1", path)


def _literal_for_duckdb(path: str) -> str:
    """A path that DuckDB takes literally: brackets, stars and question marks are patterns to it."""
    return re.sub(r"[\[*?]", lambda found: f"[{found[0]}]", path)


def _check_text(handle: BinaryIO, path: Path) -> Text:
    """Read a whole file once: refuse what is not UTF-8 or not well quoted; say what the readers must know of it.

    Runs at memory speed for files without quotes. Both engines then read a text that they cannot understand differently.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    pending = b""
    multiline, long, plain = False, False, True
    lines = [0]
    last = b""
    while True:
        chunk = handle.read(CHUNK)
        try:
            decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            at = offset - len(decoder.getstate()[0]) + error.start if not chunk else offset + error.start
            raise DayRefused(f"{shown(path)} is not UTF-8 at byte {max(at, 0)}. Save it as UTF-8") from None
        _count_lines(lines, chunk, offset)
        plain = plain and not any(sign in chunk for sign in (b'"', b"\x00"))
        offset += len(chunk)
        pending = pending + chunk if pending else chunk
        cut = len(pending) if not chunk else _last_record_end(pending)
        if cut:
            multiline = _check_quotes(pending[:cut], path) or multiline
            long = long or _has_long_line(pending[:cut])
            pending = pending[cut:]
        if not chunk:
            # The end of the last line begins none.
            lines[-1] -= last == b"\n"
            return Text(multiline, long, plain, tuple(lines))
        last = chunk[-1:]


def _has_long_line(text: bytes) -> bool:
    at = 0
    while len(text) - at > LONG_LINE:
        at = text.rfind(b"\n", at, at + LONG_LINE) + 1
        if not at:
            return True
    return False


def _count_lines(lines: list[int], chunk: bytes, offset: int) -> None:
    """Add the line ends of a chunk to those of the parts that they stand in."""
    at = 0
    while at < len(chunk):
        part = (offset + at) // SPLIT_BYTES
        end = (part + 1) * SPLIT_BYTES - offset
        lines += [0] * (part + 1 - len(lines))
        lines[part] += chunk.count(b"\n", at, end)
        at = end


def _last_record_end(text: bytes) -> int:
    """The end of the last line of `text` outside quotes; 0 when there is none."""
    end = text.rfind(b"\n") + 1
    if b'"' not in text:
        return end
    while end and text.count(b'"', 0, end) % 2:
        end = text.rfind(b"\n", 0, end - 1) + 1
    return end


def _check_quotes(text: bytes, path: Path) -> bool:
    bare, quoted_at_all = text, b'"' in text
    if quoted_at_all:
        bare = _QUOTED_FIELD.sub(b"", text.removeprefix(codecs.BOM_UTF8))
        if b'"' in bare:
            line = next(each for each in _records(path) if b'"' in _QUOTED_FIELD.sub(b"", each.text.encode()))
            raise DayRefused(
                f"{shown(path)}, {line.place}: a quote that does not enclose a whole field: {line.text[:80]!r}. "
                "Mend the line (a quote inside a quoted field is written twice)"
            )
    if b"\r" in bare and _LONE_CR.search(bare):
        raise DayRefused(f"{shown(path)} has a carriage return without a line feed. Save it with LF or CRLF line ends")
    # A carriage return in quotes counts: DuckDB reads such a file in one piece only.
    return quoted_at_all and any(bare.count(end) != text.count(end) for end in (b"\n", b"\r"))


def _records(path: Path) -> Iterator[Record]:
    """The records of a file in order; `number` 0 is the header. Blank lines are none, quoted line ends belong to a record."""
    number = -1
    start = 0
    held = b""
    with path.open("rb") as handle:
        for line_number, line in enumerate(handle, start=1):
            if not held:
                start = line_number
            held += line
            if held.count(b'"') % 2:
                continue
            text = held.rstrip(b"\n").removesuffix(b"\r")
            held = b""
            if number < 0 or not _BLANK.fullmatch(text):
                number += 1
                yield _record(number, start, text)
    if held:
        yield _record(number + 1, start, held)


def _record(number: int, line: int, text: bytes) -> Record:
    """`text` is one record without its line end."""
    decoded = text.decode(errors="backslashreplace").removeprefix("\ufeff")
    fields = _QUOTED_FIELD.sub(b"", text.removeprefix(codecs.BOM_UTF8)).count(b",") + 1
    return Record(number, f"line {line}", decoded, fields)
