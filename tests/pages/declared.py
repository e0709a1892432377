"""Which pages are run, and what of them is not."""

from __future__ import annotations

from typing import Final

#: Pages of which each block is run.
PAGES: Final = (
    "README",
    "amqp",
    "bridgemgr",
    "console",
    "exactly_once",
    "first_bridge",
    "from_hornetq",
    "from_openmq",
    "front",
    "groups",
    "high_availability",
    "imqcmd",
    "imqdbmgr",
    "index",
    "installation",
    "journal",
    "jmsbridge",
    "monitoring",
    "operations",
    "production",
    "profiles",
    "stomp",
    "tracing",
    "users",
    "virtual_topics",
    "websocket",
    "why",
)
SYNTAX: Final = "a synopsis"
DRAWN: Final = "a drawing"
#: What README has, too, is run there.
OF_README: Final = "tests/pages/test_pages.py::test_it_works_as_it_is_written"
COOKBOOK: Final = (
    "tests/end_to_end/test_cookbook.py::test_the_brokers_are_those_that_the_book_starts"
)
BURIED_NOWHERE: Final = "test_where_no_queue_takes_it_everything_is_in_the_log_and_it_is_not_buried"
JOBS: Final = "tests/pipeline/jobs"
ARCHIVED: Final = (
    "test_a_queue_is_browsed_into_a_folder_each_message_once_and_comes_back_from_there"
)
QUESTIONS: Final = "tests/pipeline/test_questions.py"
TABLES: Final = "test_the_page_of_tables_is_run"
SOURCE: Final = "tests/pipeline/datasource/test_pages.py::test_the_page_of_the_source"
WHEEL: Final = "tests/pipeline/datasource/test_wheel.py"
STANDBY: Final = "tests/takeover/test_takeover.py::test_what_processes_say_of_themselves"
BRIDGES: Final = "tests/takeover/test_bridges.py"
#: Which other test runs a block: the page, the first line, the test's file, and with ``::`` its name.
ELSEWHERE: Final[dict[tuple[str, str], str]] = {
    ("installation", "make deb"): "tests/packaging/test_debian.py",
    (
        "installation",
        "apt install ./build/deb/stomp-gateway_*.deb",
    ): "tests/packaging/test_debian.py",
    (
        "installation",
        "systemctl enable --now stomp-gateway.socket",
    ): "tests/packaging/test_debian.py",
    (
        "front",
        "SUBSCRIBE",
    ): "tests/gateway/front/test_exchanges.py::test_clients_with_one_queue_share_its_messages",
    ("cookbook", "make run                                    # once; Ctrl-C e"): OF_README,
    ("cookbook", "python3 -m venv ~/gateway"): "tests/test_wheel.py",
    ("cookbook", "apt-get install activemq rabbitmq-server default-jdk-headles"): COOKBOOK,
    ("cookbook", "java -Dactivemq.home=/usr/share/activemq -Dactivemq.base=/tm"): COOKBOOK,
    ("cookbook", "stomp.listeners.tcp.1 = 127.0.0.1:61713"): COOKBOOK,
    (
        "exactly_once",
        "------------------------------------------------------------",
    ): "tests/gateway/admin/test_render.py::test_the_page_has_transactions_as_they_are_shown",
    ("high_availability", "standing by: east owns broker orders since 2026-11-26 11:44:"): STANDBY,
    ("high_availability", "$ curl -s http://west:7680/ready"): STANDBY,
    ("high_availability", "Broker ID    Cluster ID    Process    State      Owner Since"): STANDBY,
    (
        "high_availability",
        "bridge to_erp is not started: /etc/mq/to_erp.xml: expected w",
    ): f"{BRIDGES}::test_a_bridge_that_is_configured_otherwise_elsewhere_is_refused",
    (
        "high_availability",
        "# gateway.properties of each",
    ): "tests/gateway/test_central.py::test_what_the_page_has",
    (
        "high_availability",
        "# cluster.properties",
    ): "tests/gateway/test_central.py::test_what_the_page_has",
    (
        "high_availability",
        "Bridge Name    Bridge Type    Bridge State    Owner",
    ): f"{BRIDGES}::test_the_command_shows_owners_and_transfers",
    (
        "high_availability",
        "imqbridgemgr transfer bridge -bn to_erp -to west",
    ): f"{BRIDGES}::test_the_command_shows_owners_and_transfers",
    (
        "high_availability",
        "imq.bridge.standbylist=to_erp",
    ): f"{BRIDGES}::test_a_bridge_of_a_dead_broker_is_taken_with_what_is_in_doubt",
    (
        "pipeline",
        "$ gateway-pipeline ingest --journal /var/lib/stomp-gateway/i",
    ): f"{QUESTIONS}::test_the_page_of_the_pipeline_shows_what_is_printed",
    (
        "pipeline",
        """cd "$(python -c 'import pipeline, os; print(os.path.dirname(""",
    ): "tests/pipeline/test_cluster.py::test_journeys_by_spark_submit",
    (
        "pipeline_cluster",
        "PYSPARK_PYTHON=/opt/stomp-gateway/bin/python $SPARK/bin/spar",
    ): "tests/pipeline/test_cluster.py::test_journeys_by_spark_submit",
    (
        "pipeline_dead_letters",
        "$ gateway-pipeline dead-letters --queue imq.bridge.jms.dmq -",
    ): f"{JOBS}/test_dead_letters.py::test_a_bridges_dead_are_grouped_by_their_trouble",
    (
        "pipeline_dead_letters",
        "$ gateway-pipeline replay --queue imq.bridge.jms.dmq --where",
    ): f"{JOBS}/test_replay.py::test_a_dry_run_sends_nothing_and_says_what_it_would_do",
    (
        "pipeline_dead_letters",
        "$ gateway-pipeline replay --approve orders.plan --ledger /va",
    ): f"{JOBS}/test_replay.py::test_what_is_chosen_goes_where_it_is_told_and_leaves_the_queue",
    (
        "pipeline_dead_letters",
        "$ gateway-pipeline archive orders /data/orders --login admin",
    ): f"{JOBS}/test_archive.py::{ARCHIVED}",
    (
        "pipeline_questions",
        "gateway-pipeline ingest --journal DIR --into /data/events",
    ): f"{QUESTIONS}::kept",
    (
        "pipeline_reconcile",
        "openssl genpkey -algorithm ed25519 -out reconcile.key",
    ): "tests/pipeline/test_statement.py::test_openssl_verifies_it_as_the_page_says",
    (
        "pipeline_reconcile",
        "openssl pkeyutl -verify -pubin -inkey reconcile.pub -rawin -",
    ): "tests/pipeline/test_statement.py::test_openssl_verifies_it_as_the_page_says",
    (
        "pipeline_reconcile",
        "Reconciliation of links",
    ): "tests/pipeline/jobs/test_reconcile.py::test_the_exit_code_is_1_if_it_cannot_be_proved",
    ("pipeline_source", "from pipeline.datasource.source import register"): SOURCE,
    (
        "pipeline_source",
        '.option("properties", "region string, amount double, pieces ',
    ): SOURCE,
    ("pipeline_source", 'spark.conf.set("spark.sql.python.filterPushdown.enabled", "t'): SOURCE,
    (
        "pipeline_source",
        "pip install ./pyspark_stomp-*.whl",
    ): f"{WHEEL}::test_it_is_found_without_being_registered",
    (
        "pipeline_source",
        ">>> query.lastProgress.sources[0].latestOffset",
    ): "tests/pipeline/datasource/test_progress.py::test_progress_shows_what_waits",
    (
        "from_kafka",
        'orders = spark.readStream.format("kafka") \\',
    ): "tests/pipeline/datasource/test_pages.py::test_the_page_for_those_who_come_from_kafka",
    ("pipeline_tables", "from deltalake import DeltaTable"): f"{QUESTIONS}::{TABLES}",
    (
        "pipeline_tables",
        'spark.read.parquet(*DeltaTable("/data/answer/journeys").file',
    ): f"{QUESTIONS}::{TABLES}",
    (
        "pipeline_tables",
        'files = DeltaTable("/data/archive").file_uris()',
    ): f"{QUESTIONS}::{TABLES}",
    ("README", "python3 -m venv ~/gateway"): "tests/test_wheel.py",
    (
        "README",
        'connection = stomp.Connection12([("127.0.0.1", 7672)])',
    ): "tests/test_documentation.py",
    ("index", "make run"): OF_README,
    ("first_bridge", "make run"): OF_README,
    ("first_bridge", "cd docs/tutorial"): "tests/end_to_end/test_tutorial.py",
    (
        "jmsbridge",
        "link orders: message ID1 is dead and in no dead message queu",
    ): f"tests/bridge/test_dead_messages.py::{BURIED_NOWHERE}",
    ("jmsbridge", "[options.entry_points]"): "tests/test_documented_bridges.py",
    ("jmsbridge", '<connection-factory ref-name="archive">'): "tests/test_documented_bridges.py",
    ("operations", "python3 -m venv /opt/stomp-gateway"): "tests/test_wheel.py",
    ("operations", "python3 -m pip wheel --no-deps ."): "tests/test_wheel.py",
    (
        "operations",
        "INFO [gateway.stomp.connection] and 1990 more from 3 address",
    ): "tests/gateway/stomp/test_connection_log.py",
}
PACKED: Final = "installs into an environment of its own, from an index"
MEASURES: Final = "measures for minutes"
CONTAINERS: Final = "needs Podman"
NOT_RUN: Final[dict[tuple[str, str], str]] = {
    ("bridgemgr", "imqbridgemgr SUBCOMMAND ARGUMENT [options]"): SYNTAX,
    (
        "imqdbmgr",
        "imqdbmgr COMMAND [tbl] [options]",
    ): SYNTAX,
    ("installation", "podman build -f packaging/container/Containerfile -t stomp-g"): CONTAINERS,
    ("installation", "podman exec -it mq imqusermgr add -u alice -g users"): CONTAINERS,
    ("front", "clients --- TCP, TLS, WebSocket --- load balancer --- gatewa"): DRAWN,
    ("high_availability", "backend stomp"): "needs HAProxy",
    ("imqcmd", "imqcmd SUBCOMMAND ARGUMENT [options]"): SYNTAX,
    ("pipeline_cluster", "python3.12 -m venv /tmp/environment"): PACKED,
    ("tracing", "python -m benchmarks.costs tracing --path build/compiled --o"): MEASURES,
}
