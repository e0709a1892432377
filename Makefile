# The only commands anyone must remember:
#
#   make run        a gateway on this machine, in the foreground; the first time it installs everything below .venv and var
#   make quick      unit tests and models, about 30 seconds on two cores
#   make test       all checks and tests, about eleven minutes on two cores once everything is installed
#   make test-full  the same with long samples
#   make lint       ruff, mypy and plain English only
#   make twin       the gateway of another tree beside this one: make twin OLD=../before
#   make bench      measure, README's rows first; only those: make bench BENCH=--readme
#   make bench-pairs    what a change costs: make bench-pairs OLD=../before/build/compiled NEW=build/compiled
#   make compiled   build the hottest modules as C below build, for which mypyc and a C compiler are needed; run uses them from then on, bench always
#   make wheels     stomp-gateway, compiled where that is possible, and pyspark-stomp, the data source alone, in build/wheel
#   make deb        the Debian package, in build/deb
#   make docs       the documentation, in docs/_build/html
#
# Another interpreter: make PYTHON=python3.12 run

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
VAR ?= var
INSTANCE = $(VAR)/instances/imqbroker
KEYS = $(INSTANCE)/etc/tls
# A copy of the packages with compiled modules. Where there is one it is kept up to date and used.
COMPILED = build/compiled
USED = $(if $(STOMP_GATEWAY_PURE),,$(wildcard $(COMPILED)/.built))

# The classes of Spark's Java machines, ready to be used, which makes the tests of the pipeline shorter.
CLASSES = build/spark.jsa

# Six files of tests at a time, as many wait more than they work; those that share Spark or other
# brokers are one group. None of them counts time. What fails is run once more, alone.
# make SIDE_BY_SIDE= test: one after the other.
SIDE_BY_SIDE ?= -n 6 --dist loadgroup --no-loadscope-reorder

# Images of containers like to set it; then each of the hundreds of processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: run quick test test-full prepared test-compiled lint twin bench bench-pairs compiled wheels deb docs packages

run: $(VENV)/.installed $(KEYS)/server.pem $(KEYS)/clients/guest.pem $(USED)
	@echo "Files:        $(INSTANCE) (settings in etc/gateway.properties, users in etc/users, logs in log and bridges/stomp)"
	@echo "STOMP:        127.0.0.1:7672; user guest, passcode guest"
	@echo "STOMP, TLS:   127.0.0.1:7673; a client needs $(KEYS)/clients/guest.pem and .key, and trusts $(KEYS)/ca.pem"
	@echo "WebSocket:    ws://127.0.0.1:7674/stomp"
	@echo "Port mapper:  127.0.0.1:7676"
	@echo "Console:      http://127.0.0.1:7677/ (unless the log says otherwise); user admin, password in $(INSTANCE)/etc/passfile"
	@echo "Try, in another terminal:  $(BIN)/pip install -q stomp.py && $(BIN)/python docs/first_session.py"
	@echo "Ctrl-C ends it."
	@exec $(if $(USED),env PYTHONPATH='$(CURDIR)/$(COMPILED)') $(BIN)/stomp-gateway --varhome $(VAR) -Dimq.hostname=127.0.0.1 \
	    -Dimq.bridge.stomp.tls.enabled=true -Dimq.bridge.stomp.tls.requireClientAuth=true \
	    -Dimq.bridge.stomp.listener.web.port=7674 -Dimq.bridge.stomp.listener.web.ws=true

# Bare pytest runs the tests that need no process and no port; paths name the others, too. It keeps what it has made of the tests' sources, whatever the
# environment says: making it again takes as long as a quarter of the tests.
quick: $(VENV)/.installed-for-tests
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q

test: prepared
	$(BIN)/python -m tests.twice $(SIDE_BY_SIDE) tests

# One of the long tests makes a Debian of its own, and one looks at the package.
test-full: prepared
	@tests/install-packages mmdebstrap lintian
	$(BIN)/python -m tests.twice $(SIDE_BY_SIDE) --long tests

# Two at a time, of which each keeps one core busy, or waits; the compiler is one of the packages.
prepared: $(VENV)/.installed-for-tests
	@$(MAKE) --no-print-directory $(if $(SIDE_BY_SIDE),-j 2) --output-sync=target test-compiled lint $(CLASSES)

# What of the store's tests is about files, threads and the log, of which nothing is compiled.
FILES_OF_THE_STORE = cluster_rows.py copying.py damage.py database_inspection.py faulty_disk.py full_database.py full_disk_margin.py kill.py lost_answers.py opening.py \
    postgresql.py postgresql_damage.py postgresql_kill.py postgresql_model.py power_loss.py reserve.py segments.py standby.py thread.py upgrade.py vacuum.py wal.py

# The tests of the modules that are compiled, once more, and of their users behind the seam: few examples of each, as the modules that are not compiled
# take many. Not those of passwords, nor of gateways in processes of their own, where nothing is compiled; and not that of octets searched and copied,
# which counts inside of one.
test-compiled: packages $(COMPILED)/.built
	$(BIN)/python -m pytest -q $(if $(SIDE_BY_SIDE),-n 2 --dist loadgroup --no-loadscope-reorder) -m 'not brokers and not slow' --hypothesis-profile small \
	    -o pythonpath='$(COMPILED) .' tests/compiled.py tests/gateway/stomp tests/gateway/messaging tests/gateway/broker tests/properties/test_wire.py \
	    tests/bridge/providers/stomp tests/contract tests/gateway/tracing $(addprefix --ignore=tests/gateway/,$(addprefix broker/store/test_,$(FILES_OF_THE_STORE)) \
	    $(addprefix broker/security/test_,passcodes.py usermgr.py users.py) stomp/test_memory.py stomp/wire/test_work.py)

lint: $(VENV)/.installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.language
	$(BIN)/python -m tests.dependencies
	$(BIN)/mypy

# A tree is a checkout or an unpacked wheel; make twin OLD=../before TWIN='--examples 5000 --allow error-texts'.
twin: $(VENV)/.installed-for-tests
	$(BIN)/python -m tests.twin $(OLD) $(TWIN)

bench: $(VENV)/.installed-for-tests $(if $(STOMP_GATEWAY_PURE),,$(COMPILED)/.built)
	@tests/install-packages activemq rabbitmq-server
	$(BIN)/python -m benchmarks $(BENCH) $$([ -z '$(STOMP_GATEWAY_PURE)' ] && [ -e $(COMPILED)/.built ] && echo --gateway-path $(COMPILED))

bench-pairs: $(VENV)/.installed-for-tests
	$(BIN)/python -m benchmarks.pairs $(OLD) $(NEW) $(PAIRS)

compiled: $(COMPILED)/.built

# Not beside the sources, where a compiled module would hide what is edited. What cannot be compiled setup.py says; then the gateway runs as it is.
$(COMPILED)/.built: setup.py setup.cfg pyproject.toml $(shell find gateway bridge certs pipeline twisted -name '*.py' -o -name '*.sql' -o -name py.typed -o -name '*.jar' -o -name '*.html' -o -name '*.js' -o -name '*.css' -o -name '*.svg') | $(VENV)/.installed-for-tests
	@echo "Compiling into build/compiled, which takes a minute"
	@rm -rf $(COMPILED).new build/wheel
	@$(BIN)/python -W 'ignore:setup.py install is deprecated' setup.py --quiet build --build-lib $(COMPILED).new bdist_wheel --skip-build --dist-dir build/wheel
	@rm -rf $(COMPILED)
	@if find $(COMPILED).new -name '*.so' | grep -q .; then mv $(COMPILED).new $(COMPILED) && touch $@; else rm -rf $(COMPILED).new; fi

# The first of them is made when the sources are compiled, and stays pure where they cannot be.
wheels: $(COMPILED)/.built
	@$(BIN)/python -m pipeline.datasource.wheel build/wheel
	@ls build/wheel/stomp_gateway-*.whl

# Of the Python that Debian has, for which the wheel must have been made: make PYTHON=/usr/bin/python3 VENV=build/venv deb. With other extras: make EXTRAS=amqp,ldap deb.
deb: wheels
	@PIP='$(abspath $(BIN))/python -m pip' CYCLONEDX='$(abspath $(BIN))/cyclonedx-py' packaging/debian/build build/wheel/stomp_gateway-*.whl build/deb

$(CLASSES): $(VENV)/.installed-for-tests | packages
	@echo "Making build/spark.jsa, which takes a minute"
	@$(BIN)/python -m tests.pipeline.class_archive

docs: $(VENV)/.installed-for-tests
	$(BIN)/python -m sphinx -n -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

packages:
	@tests/install-packages

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "make: '$(PYTHON)' must be Python 3.11 or later; name another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "make: '$(PYTHON)' cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# In compatible mode, because twistd does not find plugins of the other editable installs. Listing the plugins once lets Twisted write
# its cache now, and not at each start.
INSTALL = STOMP_GATEWAY_PURE=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat
LIST_PLUGINS = $(BIN)/python -c 'from twisted.plugin import IPlugin, getPlugins; list(getPlugins(IPlugin))'

$(VENV)/.installed: setup.cfg pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -e .
	@$(LIST_PLUGINS)
	@touch $@

# The protocol engine of AMQP comes as C where there is no wheel of it.
$(VENV)/.installed-for-tests: setup.cfg pyproject.toml | $(VENV)/bin/python
	@{ command -v cc && test -e "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; } >/dev/null || \
	    tests/install-packages --only gcc libc6-dev python3-dev
	$(INSTALL) -e '.[test]'
	@$(LIST_PLUGINS)
	@touch $(VENV)/.installed $@

$(KEYS)/server.pem: | $(VENV)/.installed
	@$(BIN)/imqkeytool server --varhome $(VAR) --dns localhost --ip 127.0.0.1

$(KEYS)/clients/guest.pem: | $(KEYS)/server.pem
	@$(BIN)/imqkeytool client --varhome $(VAR) --name guest
