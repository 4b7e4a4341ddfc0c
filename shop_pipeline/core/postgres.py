"""Connections to Postgres: in UTC, read-only unless told otherwise, and every failure a sentence without a password in it."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlsplit

import psycopg

from shop_pipeline.core.errors import SettingError, SourceRefused, SourceUnavailable

CONNECT_SECONDS = 10
# What libpq and JDBC both know.
_TLS = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
DEFAULT_PORT = 5432
# Whatever the server, the role or the database say by default.
# An idle snapshot is held while Spark starts; a lock that another holds is not waited for without end.
_OPTIONS = (
    "-c idle_in_transaction_session_timeout=0 -c lock_timeout=60s "
    "-c TimeZone=UTC -c DateStyle=ISO,YMD -c IntervalStyle=postgres -c extra_float_digits=1"
)


@dataclass(frozen=True)
class Address:
    """Where a database is. Its text has no password, nor has its repr."""

    host: str
    port: int
    database: str
    user: str
    _password: str
    tls: str = "prefer"

    @staticmethod
    def of(url: str) -> "Address":
        """The address that a URL is, `postgresql://user:password@host:port/database`, with `?sslmode=…` where it is wanted.

        Raises:
            SettingError: it is none. The URL is not repeated, for it may have a password in it.
        """
        try:
            parts = urlsplit(url.strip())
            port = parts.port or DEFAULT_PORT
        except ValueError:
            parts, port = urlsplit(""), 0
        database = parts.path.lstrip("/")
        asked = parse_qs(parts.query, keep_blank_values=True)
        tls = asked.pop("sslmode", ["prefer"])[-1]
        # An @ or a # that is not written as %40 or %23 is a part of a password that would be taken for something else.
        odd = not database or set("/@") & set(database) or parts.fragment or asked or tls not in _TLS
        host = unquote(parts.hostname or "")
        if parts.scheme not in ("postgresql", "postgres") or not host or set("/,") & set(host) or not parts.username or odd:
            raise SettingError(
                "SHOP_POSTGRES_URL is not the address of a Postgres database: write postgresql://user:password@host:port/database "
                f"(one host, over TCP; signs such as / @ # in a password as %2F %40 %23; ?sslmode= may be {', '.join(_TLS)})."
            )
        return Address(host, port, unquote(database), unquote(parts.username), unquote(parts.password or ""), tls)

    def __str__(self) -> str:
        return f"Postgres at {self.host}:{self.port}, database {self.database}"

    def __repr__(self) -> str:
        return f"Address({self})"

    @property
    def for_jdbc(self) -> str:
        """The same for JDBC, without user and password."""
        return f"jdbc:postgresql://{self.host}:{self.port}/{quote(self.database, safe='')}?ApplicationName=shop&sslmode={self.tls}"

    @property
    def credentials(self) -> dict[str, str]:
        """User and password, as JDBC's properties."""
        return {"user": self.user, "password": self._password}

    def open(self, *, autocommit: bool = False) -> psycopg.Connection:
        """A connection.

        Raises:
            SourceUnavailable: the server cannot be reached; it may pass.
            SourceRefused: the server refused; a person must help.
        """
        with self.sentences():
            return psycopg.connect(
                host=self.host,
                port=self.port,
                dbname=self.database,
                user=self.user,
                # Given even where they are empty: the environment of libpq would lead one engine elsewhere, and not the other.
                password=self._password,
                passfile=os.devnull,
                hostaddr="",
                sslmode=self.tls,
                connect_timeout=CONNECT_SECONDS,
                options=_OPTIONS,
                application_name="shop",
                autocommit=autocommit,
            )

    @contextmanager
    def connect(self, *, autocommit: bool = False) -> Iterator[psycopg.Connection]:
        """A connection, closed at the end; what goes wrong in it is a sentence as well."""
        with closing(self.open(autocommit=autocommit)) as connection, self.sentences():
            yield connection

    @contextmanager
    def sentences(self) -> Iterator[None]:
        """What psycopg raises inside, as a sentence."""
        try:
            yield
        except psycopg.Error as error:
            raise self.sentence(error) from None

    def sentence(self, error: psycopg.Error) -> SourceUnavailable | SourceRefused:
        """An error of psycopg in a sentence."""
        return self.from_state(error.sqlstate, str(error))

    def from_state(self, state: str | None, text: str) -> SourceUnavailable | SourceRefused:
        """An error in a sentence, from its SQLSTATE (None: there was no answer) and its text."""
        first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
        if self._password:
            first = first.replace(self._password, "***")
        if "authentication failed" in first or "no password supplied" in first or (state or "").startswith("28"):
            return SourceRefused(f"{self} does not let user {self.user} in: look at user and password in SHOP_POSTGRES_URL.")
        if "pg_hba.conf" in first or "not permitted to log in" in first:
            return SourceRefused(f"{self} does not let user {self.user} in ({first}): its access rules are to be changed.")
        if state == "3D000" or ('database "' in first and "does not exist" in first):
            return SourceRefused(f"{self} is not there ({first}): look at SHOP_POSTGRES_URL, or run `shop sample shopflow`.")
        if state is not None and state[:2] in ("42", "22", "25"):
            return SourceRefused(f"{self} refused to answer ({first}): look at the table and at the rights of user {self.user}.")
        return SourceUnavailable(
            f"{self} cannot be read ({first}); nothing was written. See that it runs and answers "
            "(one that `shop sample shopflow` made: `shop postgres start`), and run the same again."
        )
