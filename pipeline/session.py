"""The Spark session of a job: where it runs, its memory, its silence.

Owns the options that every job has for it, and what is told where Spark or Java is missing. Knows
no job. Imports Spark only when a session is started.

On this machine (``local[...]``) Spark listens on 127.0.0.1 only and has no web page. Everywhere the
session's time zone is UTC. What Spark and its Java machine write to their log goes to
``--spark-log``, else nowhere: what an operator needs to know is in the error.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from pipeline.columns import UNLIKE
from pipeline.errors import PipelineError
from pipeline.failures import sentence
from pipeline.option_groups import option_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Function = TypeVar("_Function", bound=Callable[..., Any])

LOCAL: Final = "local[*]"
_REMOTE_PORT: Final = 15002
#: In an address, before the host.
_CREDENTIALS: Final = re.compile(r"://[^/@\s]*@")
#: Of a Spark Connect server, behind it.
_PARAMETERS: Final = re.compile(r"(sc://[^;\s]*);\S*")
#: Of the calls of a remote session: how often one is tried again, and milliseconds between two. A
#: server that does not answer for twenty seconds is gone.
_TRIES: Final = 6
_MOST_BETWEEN: Final = 8_000
#: That a standalone master is given to take a connection.
_ANSWER_SECONDS: Final = 10
_JAVA: Final = "Spark needs Java 17 or later: install it, or set JAVA_HOME to where it is"

_COMPILED: Final = "spark.sql.codegen.cache.maxEntries"
#: What all sessions have. Small files are cheap to open here, so that a task reads many of them; a
#: listing of a journal is not worth a job of its own; what is kept to be asked again is put into as
#: few partitions as fit its size, as is what is asked once. Where in our code an expression was
#: made is of no use to an operator, and finding out takes a second of each job.
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    "spark.sql.files.openCostInBytes": str(256 * 1024),
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1024",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    **{
        f"spark.hadoop.parquet.{what}#{column}": "false"
        for column in UNLIKE
        for what in ("enable.dictionary", "column.statistics.enabled")
    },
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A job that goes on has the same stages each time, and more of them than the hundred that are
    # kept compiled by default: each would be compiled each time.
    _COMPILED: "2000",
}
#: Those that a session has by itself, and not its Java machine.
_OF_SESSIONS: Final = {
    key: value
    for key, value in SETTINGS.items()
    if key.startswith("spark.sql.")
    and not key.startswith("spark.sql.pyspark.")
    and key != _COMPILED
} | {
    key.removeprefix("spark.hadoop."): value
    for key, value in SETTINGS.items()
    if key.startswith("spark.hadoop.")
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True)
class SessionOptions:
    """Where Spark runs.

    :param remote: the address of a Spark Connect server, ``sc://HOST:PORT``; None: a Java machine
        is started here.
    :param master: of Spark; None: what spark-submit says, else :data:`LOCAL`.
    :param memory: of the driver, which is all there is on this machine, as Spark writes sizes;
        None: Spark's own choice where spark-submit has started it.
    :param settings: Spark's own, over all others.
    :param log: where Spark's log goes.
    """

    master: str | None = None
    memory: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    remote: str | None = None

    def check(self) -> None:
        """Whether they go together. :raises PipelineError: they do not."""
        if self.master is not None and self.master.startswith("sc://"):
            shown = without_secrets(self.master)
            raise PipelineError(
                f"--master {shown} is a Spark Connect server: expected --remote {shown}"
            )
        if self.remote is None:
            return
        if not self.remote.startswith("sc://"):
            raise PipelineError(f"--remote {without_secrets(self.remote)}: expected sc://HOST:PORT")
        for name, given in (
            ("--master", self.master),
            ("--memory", self.memory),
            ("--spark-log", self.log),
        ):
            if given is not None:
                raise PipelineError(
                    f"{name} is for the server of --remote to decide: expected one of the two"
                )

    def here(self, path: str) -> Path | None:
        """A path as one of this machine's.

        :returns: None where Spark may have it elsewhere.
        """
        if path.startswith("file:/"):
            return Path("/" + path.removeprefix("file:").lstrip("/"))
        elsewhere = (
            self.remote is not None
            or "://" in path
            or "spark.hadoop.fs.defaultFS" in self.settings
            or not os.environ.keys().isdisjoint(("HADOOP_CONF_DIR", "PYSPARK_GATEWAY_PORT"))
        )
        return None if elsewhere else Path(path)


def session_options(command: _Function) -> _Function:
    """Give a click command the session's options as ``session``.

    It is a :class:`SessionOptions`.
    """

    def start(
        context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
    ) -> dict[str, str]:
        pairs = [text.partition("=") for text in value]
        for name, equals, _ in pairs:
            if not equals or not name:
                raise click.BadParameter(f"{name!r}: expected NAME=VALUE")
        return {name: text for name, _, text in pairs}

    def session(given: dict[str, Any]) -> SessionOptions:
        options = SessionOptions(
            given["master"], given["memory"], given["conf"], given["spark_log"], given["remote"]
        )
        options.check()
        return options

    options = (
        click.option("--master", metavar="URL", help=f"Where Spark runs. [default: {LOCAL}]"),
        click.option(
            "--remote", metavar="URL", help="A Spark Connect server to run on: sc://HOST:PORT."
        ),
        click.option(
            "--memory",
            metavar="SIZE",
            help="Memory of Spark's driver; on this machine that is all. [default: 2g]",
        ),
        click.option(
            "--conf",
            multiple=True,
            callback=start,
            metavar="NAME=VALUE",
            help="A setting of Spark's. May be repeated.",
        ),
        click.option(
            "--spark-log",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Where Spark's own log goes.",
        ),
    )
    return option_group("session", options, session)(command)


@contextmanager
def spark_session(
    name: str, options: SessionOptions | None = None, folders: Sequence[str] = ()
) -> Iterator[SparkSession]:
    """A Spark session, which is stopped at the end.

    With a remote it is one of that server's, and only the session ends.

    One that runs in this process already is used as it is, and not stopped.

    :param name: of the application, as Spark shows it.
    :param folders: that must be there. Of those that are on this machine for certain it is told
        before Spark is started.
    :raises PipelineError: when there is no PySpark, no Java, or Spark does not start; and for what
        Spark raises in the body, whose reason cannot be asked for later.
    """
    options = options or SessionOptions()
    for folder in folders:
        here = options.here(folder)
        if here is not None and not here.exists():
            raise PipelineError(
                f"{folder} does not exist: expected a folder with a journal or a table"
            )
    if options.remote is not None:
        with _remote_session(name, options.remote, options.settings) as session:
            yield session
        return
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    # It writes each refused query to the standard error, with the whole stack.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel("CRITICAL")
    # The same of what a stream calls; it comes here as an error, too.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    if (running := SparkSession.getActiveSession()) is not None:
        # Whoever started it has chosen, and ends it.
        yield running
        return
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    with _log(options.log) as log:
        if submitted:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)
            conf = SparkConf()
        else:
            _check_java()
            _check_master(options.master)
            conf = SparkConf(loadDefaults=False)
        for key, value in settings(options, submitted, conf.get("spark.master", None)).items():
            conf.set(key, value)
        conf.setAppName(name)
        if not submitted:
            if conf.get("spark.master").startswith("local"):  # type: ignore[union-attr]
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # The workers need what this process has, and not what python3 on the path happens to
            # have; on a cluster at the same place, as the driver has workers of its own. PySpark
            # uses the setting of that name only where spark-submit has started Python.
            os.environ.setdefault(
                "PYSPARK_PYTHON", conf.get("spark.pyspark.python", None) or sys.executable
            )
            gateway = _launch(launch_gateway, conf, log)
        try:
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            raise PipelineError(f"Spark did not start: {sentence(error) or error}") from error
        try:
            yield SparkSession(context)
        except Exception as error:
            # Now, as the Java machine that knows why is about to end.
            text = sentence(error)
            if text is None:
                raise
            if "stopped SparkContext" in text:
                text = f"the session at {context.master} was ended by Spark, or its cluster; --spark-log FILE keeps what it says"
            raise PipelineError(text) from error
        finally:
            context.stop()
            if not submitted:
                gateway.shutdown()
                gateway.proc.stdin.close()
                gateway.proc.wait()
                SparkContext._gateway = SparkContext._jvm = None


def _missing(error: ModuleNotFoundError) -> PipelineError:
    return PipelineError(
        f"the Python package {str(error.name).split('.')[0]} is not installed: the pipeline needs pip install 'stomp-gateway[pipeline]'"
    )


@contextmanager
def _remote_session(name: str, address: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of a Spark Connect server, which goes on when that is over."""
    try:
        from pyspark.errors import PySparkException, PySparkImportError
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    shown = without_secrets(address)
    try:
        place = urlsplit(shown)
        host, port = place.hostname, place.port or _REMOTE_PORT
    except ValueError:
        host, port = None, 0
    if host is None:
        raise PipelineError(f"--remote {shown}: expected sc://HOST:PORT")
    _check_answers(f"{host}:{port}", f"--remote {shown}: no server")
    try:
        session = SparkSession.builder.remote(address).appName(name).create()
    except PySparkImportError as error:
        raise PipelineError(
            f"--remote needs more of PySpark: pip install 'stomp-gateway[connect]' ({error.getMessage()})"
        ) from error
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies(
        [DefaultPolicy(max_retries=_TRIES, max_backoff=_MOST_BETWEEN)]
    )
    PySparkLogger.getLogger("SparkConnectClient").setLevel("CRITICAL")
    # Of ranks of a few rows that are aggregated already.
    warnings.filterwarnings("ignore", "WARN WindowExpression")
    # The error that comes with it says it.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    try:
        for key, value in {**_OF_SESSIONS, **settings}.items():
            try:
                session.conf.set(key, value)
            except PySparkException as error:
                raise PipelineError(
                    f"--conf {key}: it is for the server at {shown} to set ({sentence(error)})"
                ) from error
        yield session
    except Exception as error:
        # Its end is not waited for once more.
        session.client.set_retry_policies([DefaultPolicy(max_retries=0)])
        text = sentence(error)
        if text is None:
            raise
        raise PipelineError(text) from error
    finally:
        session.stop()


def without_secrets(address: str) -> str:
    """An address without a token, and without what is before its host."""
    return _PARAMETERS.sub(r"\1", _CREDENTIALS.sub("://", address))


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def settings(
    options: SessionOptions, submitted: bool = False, master: str | None = None
) -> dict[str, str]:
    """Spark's settings for a job.

    :param submitted: spark-submit has started the driver's Java machine, so its master, memory and
        addresses are settled.
    :param master: of spark-submit.
    """
    chosen = options.master or master or LOCAL
    found = dict(SETTINGS)
    if options.master or not master:
        found["spark.master"] = chosen
    if chosen.startswith("local") and not submitted:
        found |= _LOCAL_SETTINGS
    if options.memory or not submitted:
        found["spark.driver.memory"] = options.memory or "2g"
    return found | dict(options.settings)


@contextmanager
def _log(path: Path | None) -> Iterator[IO[bytes]]:
    """Open the JVM's log; a nameless temporary file if none was asked for."""
    if path is None:
        with tempfile.TemporaryFile() as file:
            yield file
        return
    try:
        kept = path.open("ab+")
    except OSError as error:
        raise PipelineError(f"--spark-log {path}: {error.strerror}") from error
    with kept:
        yield kept


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise PipelineError(f"there is no java on the path. {_JAVA}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        raise PipelineError(f"{java} cannot be run ({error}). {_JAVA}") from error
    version = said.partition('version "')[2].partition('"')[0]
    number = version.split(".")[0]
    if number.isdigit() and int(number) < 17:
        raise PipelineError(f"{java} is Java {version}. {_JAVA}")


def _check_master(master: str | None) -> None:
    """Check that a standalone master answers.

    Spark would try for a minute, and then report something else.
    """
    if master is None or not master.startswith("spark://"):
        return
    _check_answers(master.removeprefix("spark://"), f"--master {master}: no master")


def _check_answers(addresses: str, silence: str) -> None:
    """Check that somebody listens at one of several addresses.

    :param silence: how the sentence begins if it is otherwise.
    """
    failed: OSError | ValueError | None = None
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
        except (OSError, ValueError) as error:
            failed = error
        else:
            return
    raise PipelineError(f"{silence} answers there ({failed})")


class _Deaf(dict[str, Any]):
    """How the Java machine is started: deaf to SIGTERM, too.

    PySpark has it ignore SIGINT. But a service is ended by a SIGTERM to all of its processes, and a
    job that ends in an orderly way needs its Java machine until it has; the machine ends when this
    process does, however that ends.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "preexec_fn":

            def start() -> None:
                value()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)

            super().__setitem__(name, start)
        else:
            super().__setitem__(name, value)


def _launch(launch_gateway: Callable[..., Any], conf: Any, log: IO[bytes]) -> Any:
    from pyspark.errors import PySparkException

    try:
        return launch_gateway(conf, _Deaf(stderr=log, stdout=log))
    except PySparkException as error:
        log.seek(0)
        said = log.read().decode(errors="replace").strip().splitlines()
        raise PipelineError(
            f"Spark's Java machine did not start: {said[-1] if said else 'it said nothing'}"
        ) from error
