"""The help of ``imqbridgemgr`` and ``imqcmd``, for ``-h`` and ``-H``.

It has the answer of ``imqcmd`` to subcommands of Open MQ that it lacks, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BRIDGES_SHORT: Final = """\
usage: imqbridgemgr SUBCOMMAND ARGUMENT [options]

  list    bridge [-bn NAME] [-t TYPE]
  list    link   -bn NAME [-ln NAME]
  query   link   -bn NAME [-ln NAME]
  why     link   -bn NAME -ln NAME
  watch   bridge [-t TYPE], watch link -bn NAME [-ln NAME]
  start   bridge [-bn NAME] [-t TYPE], start link -bn NAME -ln NAME
  stop    bridge [-bn NAME] [-t TYPE], stop link -bn NAME -ln NAME
  pause   bridge -bn NAME or -t TYPE, pause link -bn NAME -ln NAME
  resume  bridge -bn NAME or -t TYPE, resume link -bn NAME -ln NAME
  create  bridge -bn NAME -xml FILE [-o PROPERTY=VALUE ...]
  destroy bridge -bn NAME
  reload  bridge -bn NAME
  transfer bridge -bn NAME -to BROKERID
  level   bridge -bn NAME [-level LEVEL]
  list    dead   [-bn NAME -dmq NAME] [-selector SELECTOR] [-limit N]
  replay  dead   [-bn NAME -dmq NAME] [-selector SELECTOR] [-to queue:NAME] [-limit N] [-dry-run]
  purge   dead   [-bn NAME -dmq NAME] [-selector SELECTOR] [-limit N] [-dry-run]
  list    transactions -bn NAME
  commit  transaction -bn NAME -tid ID, rollback and forget likewise
  validate FILE  [-bn NAME]
  completion bash
  completion zsh
  completion fish
  completion contexts

  -b HOST:PORT     the broker's port mapper; default localhost:7676
  -context NAME    the broker of a context, see 'imqcmd context add'; also by IMQ_CONTEXT
  -u NAME          the administrator; asked for if not given
  -passfile FILE   has imq.imqbridgemgr.password; asked for if not given
  -bn NAME         the bridge          -ln NAME   the link
  -t TYPE          jms or stomp        -debug     more tables
  -xml FILE        the configuration of a new bridge; it is sent to the gateway
  -o NAME=VALUE    a property of it: the end of imq.bridge.NAME.*, such as level or autostart
  -tid ID          the transaction
  -dmq NAME        a dead message queue of the bridge; default the built-in one
  -f               do not ask whether it shall be done, nor for a password
  -s               print nothing but errors
  --json           print JSON instead of tables
  -secure          only over TLS       -cacert FILE   certificates to trust, PEM; default the system's
  -rtm SECONDS     how long to wait for an answer, longer at each retry; default 10, 0 for ever
  -rtr N           how often to wait again; default 5
  -interval SECONDS, -count N   of watch: how often to look, and how many times
  -javahome PATH, -DNAME=VALUE  accepted and not used: there is no JVM
  -h -help --help  this    -H -Help   this with examples    -v -version   the version
"""

BRIDGES_LONG: Final = (
    BRIDGES_SHORT
    + """
Examples:

  All bridges of type JMS on the broker whose port mapper is at myhost:8886:
      imqbridgemgr list bridge -t jms -b myhost:8886 -u admin

  Start a bridge without being asked:
      imqbridgemgr start bridge -bn mq2external -f -u admin -passfile /etc/mq/passfile

  What a link does, how fast, and what went wrong last; and why it moves nothing:
      imqbridgemgr query link -bn mq2external -ln link1 -u admin
      imqbridgemgr why link -bn mq2external -ln link1 -u admin

  Have one bridge more, without a restart:
      imqbridgemgr create bridge -bn mq2external -xml mq2external.xml -u admin

  Heed a changed XML file; links that it does not change keep running:
      imqbridgemgr validate mq2external.xml && imqbridgemgr reload bridge -bn mq2external -u admin

  See what would be sent again of what could not be sent, then do it:
      imqbridgemgr replay dead -selector "JMS_SUN_JMSBRIDGE_DMQ_REASON = 'SEND_FAILURE'" -dry-run -u admin
      imqbridgemgr replay dead -selector "JMS_SUN_JMSBRIDGE_DMQ_REASON = 'SEND_FAILURE'" -u admin

  What is in doubt, and, for a broker that will never come back, an end of it:
      imqbridgemgr list transactions -bn mq2external -debug -u admin
      imqbridgemgr commit transaction -bn mq2external -tid 100000000002a -u admin

Exit codes: 0 done, also when you answer no; 1 everything else.
"""
)

BROKER_SHORT: Final = """\
usage: imqcmd SUBCOMMAND ARGUMENT [options]

  list    dst    [-t q|t] [-tmp]
  query   dst    -t q|t -n NAME
  create  dst    -t q|t -n NAME [-o PROPERTY=VALUE ...]
  update  dst    -t q|t -n NAME -o PROPERTY=VALUE [-o ...]
  purge   dst    -t q|t -n NAME [-selector SELECTOR] [-o useDMQ=true]
  pause   dst    [-t q|t -n NAME] [-pst ALL|CONSUMERS|PRODUCERS]
  resume  dst    [-t q|t -n NAME]
  destroy dst    -t q|t -n NAME [-o useDMQ=true]
  list    msg    -t q -n QUEUE [-selector SELECTOR] [-maxNumMsgsRetrieved N]
  query   msg    -t q -n QUEUE -msgID ID
  move    msg    -t q -n QUEUE [-msgID ID] [-selector SELECTOR] [-limit N] -to QUEUE
  copy    msg    -t q -n QUEUE [-msgID ID] [-selector SELECTOR] [-limit N] -to QUEUE
  delete  msg    -t q -n QUEUE [-msgID ID] [-selector SELECTOR] [-limit N]
  replay  msg    -t q -n QUEUE [-msgID ID] [-selector SELECTOR] [-limit N]
                 [-to queue:NAME|topic:NAME] [-body FILE] [-priority N] [-type TYPE]
                 [-expires TIME|never] [-o NAME=VALUE]
  list    scheduled -t q|t -n NAME [-maxNumMsgsRetrieved N]
  destroy scheduled -n JOBID
  list    dur    [-d TOPIC]
  destroy dur    -n SUBSCRIPTION -c CLIENTID
  list    cxn    [-svn SERVICE]
  query   cxn    -n ID
  destroy cxn    -n ID
  list    svc
  query   svc    -n SERVICE
  pause   svc    -n SERVICE
  resume  svc    -n SERVICE
  reload  svc
  list    txn
  query   txn    -n ID
  commit  txn    -n ID
  rollback txn   -n ID
  forget  txn    -n ID
  query   bkr
  list    bkr
  takeover bkr   -n BROKERID
  quiesce bkr
  shutdown bkr
  why     dst    -t q|t -n NAME
  why     msg    -id ID
  why     cxn    -id ID
  why     link   -bn BRIDGE -ln LINK
  doctor
  bench  [-t q|t] [-n NAME] [-producers N] [-consumers N] [-size BYTES] [-persistent] [-window N] [-ack MODE] [-duration SECONDS]
  events [-follow] [-since 10m|TIME] [-kind KIND,...]
  export FILE
  plan   FILE [-prune]
  apply  FILE [-prune]
  context add NAME [-b HOST:PORT] [-u NAME] [-passfile FILE] [-cacert FILE] [-secure]
  context use NAME
  context list
  context remove NAME
  completion bash
  completion zsh
  completion fish
  completion contexts

  -b HOST:PORT     the broker's port mapper; default localhost:7676
  -context NAME    the broker of a context, see 'imqcmd context add'; also by IMQ_CONTEXT
  -u NAME          the administrator; asked for if not given
  -passfile FILE   has imq.imqcmd.password; asked for if not given
  -t q|t           queue or topic      -n NAME   of the destination, the subscription, the connection, the service, the
                   transaction, the broker
  -o NAME=VALUE    a property: maxNumMsgs, maxTotalMsgBytes, maxBytesPerMsg, limitBehavior, useDMQ,
                   deadLetterQueue, isDMQ (queues), address (queues), lastValueKey (queues),
                   maxNumActiveConsumers (queues), maximumRedeliveries, initialRedeliveryDelay,
                   redeliveryDelay, useExponentialBackOff, backOffMultiplier, maximumRedeliveryDelay;
                   of purge and destroy useDMQ=true: the messages go to the dead message queue, else they are gone
  -pst TYPE        for whom a destination is paused; default ALL. Without -n: all destinations
  -tmp             temporary destinations, too
  -id ID           of why: a message, or a connection
  -bn NAME         a bridge            -ln NAME   a link of it
  -selector TEXT   only messages that this JMS selector matches
  -producers N, -consumers N, -size BYTES, -duration SECONDS, -persistent   of bench: the load; default 1, 1, 1024, 10
  -window N        receipts that a producer waits for at one time; default 100, 0 for none
  -ack MODE        auto, client or client-individual; default auto
  -follow          go on with what happens from now on
  -since 10m|TIME  events of the last 90s, 10m, 2h or 1d, or since such as 2026-01-31T12:00:00Z
  -kind KIND,...   only events of these kinds, such as connection,link.failing
  -prune           destroy what the file does not have
  -limit N         how many messages at most; of move, copy, delete and replay one of -msgID, -selector, -limit is needed
  -to NAME         where messages go; of replay queue:NAME or topic:NAME, else to where each came from
  -body FILE       of replay with -msgID: the body that the message is to have, - for standard input; -o: other properties
  -priority N, -type TYPE, -expires TIME|never   of replay: from 0 to 9; the JMSType; when, such as 2026-01-31T12:00:00Z
  -msgID ID        of a message        -maxNumMsgsRetrieved N   how many to list; default 100
  -f               do not ask whether it shall be done, nor for a password
  -s               print nothing but errors
  --json           print JSON instead of tables
  -secure          only over TLS       -cacert FILE   certificates to trust, PEM; default the system's
  -rtm SECONDS     how long to wait for an answer, longer at each retry; default 10, 0 for ever
  -rtr N           how often to wait again; default 5
  -javahome PATH, -DNAME=VALUE  accepted and not used: there is no JVM
  -h -help         this    -H -Help   this with examples    -v -version   the version
"""

BROKER_LONG: Final = (
    BROKER_SHORT
    + """
Examples:

  Name a broker and how it is reached, and use it from now on:
      imqcmd context add test -b myhost:8886 -u admin -passfile /etc/mq/passfile
      imqcmd context use test

  All destinations of the broker whose port mapper is at myhost:8886, temporary ones, too:
      imqcmd list dst -tmp -b myhost:8886 -u admin

  A queue that holds ten messages and then gives up the oldest to the dead message queue:
      imqcmd create dst -t q -n orders -o maxNumMsgs=10 -o limitBehavior=REMOVE_OLDEST -u admin

  Why the messages of a queue are not delivered, where a message is, why a client receives nothing:
      imqcmd why dst -t q -n orders -u admin
      imqcmd why msg -id ID-4f2a-17 -u admin
      imqcmd why cxn -id 5 -u admin

  Which process owns the broker, and which stand by; then have another one own it:
      imqcmd list bkr -u admin
      imqcmd takeover bkr -n orders -b standby:7676 -u admin

  Have the dead message queue of the JMS bridges hand everything over to mq.sys.dmq:
      imqcmd update dst -t q -n imq.bridge.jms.dmq -o maxNumMsgs=0 -o limitBehavior=REMOVE_OLDEST -o useDMQ=true -u admin

  Deliver nothing of a queue while its consumers are changed, and take what is sent to it:
      imqcmd pause dst -t q -n orders -pst CONSUMERS -u admin
      imqcmd resume dst -t q -n orders -u admin

  See what happens to destinations and links, beginning ten minutes ago:
      imqcmd events -follow -since 10m -kind destination,link -u admin

  What is dead, and why:
      imqcmd list msg -t q -n mq.sys.dmq -u admin

  Send dead messages to where they came from; the one with that id with another body and colour:
      imqcmd replay msg -t q -n mq.sys.dmq -selector "JMS_SUN_DMQ_DESTINATION = 'queue:orders'" -u admin
      imqcmd replay msg -t q -n mq.sys.dmq -msgID ID-4f2a-17 -body mended.json -o colour=red -u admin

  Move the first hundred red messages to another queue:
      imqcmd move msg -t q -n orders -selector "colour = 'red'" -limit 100 -to queue:red -u admin

  Give up what has waited too long, without being asked:
      imqcmd purge dst -t q -n orders -selector "JMSTimestamp < 1700000000000" -f -u admin -passfile /etc/mq/passfile

  Remove a durable subscription that nobody uses any more:
      imqcmd list dur -d quotes -u admin
      imqcmd destroy dur -n mySubscription -c myClientID -u admin

  List the ports that clients connect to; close one, open it again; read the settings of listeners again:
      imqcmd list svc -u admin
      imqcmd pause svc -n stomp-web -u admin
      imqcmd resume svc -n stomp-web -u admin
      imqcmd reload svc -u admin

  Branches of XA transactions that their coordinator has prepared, and the end of one whose coordinator is gone:
      imqcmd list txn -u admin
      imqcmd rollback txn -n 4a4d5100.0e74...01.04686572... -u admin

  Keep what the instance has in a file; see what a change of the file would do, then do it:
      imqcmd export orders.toml -u admin
      imqcmd plan orders.toml -u admin
      imqcmd apply orders.toml -u admin

Exit codes: 0 done, also when you answer no; 2 'plan' has found changes; 1 everything else.
'doctor' ends with 1 by warnings and with 2 by errors.
"""
)

#: What to do instead of what Open MQ has and this has not.
INSTEAD: Final[Mapping[str, str]] = {
    "compact dst": "the store gives its space back by itself",
    "metrics dst": "'query dst' has the counts",
    "metrics bkr": "'query bkr' has the counts",
    "purge dur": "'purge dst' empties all subscriptions of a topic, 'destroy dur' removes one",
    "update bkr": "settings are in the instance's gateway.properties",
    "restart bkr": "restart its service",
    "pause bkr": "pause the STOMP bridge with 'imqbridgemgr pause bridge'",
    "resume bkr": "resume the STOMP bridge with 'imqbridgemgr resume bridge'",
    "update svc": "settings are in the instance's gateway.properties; 'imqcmd reload svc' has those of the listeners read again",
}
