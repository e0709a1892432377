"""What ``imqcmd -h`` and ``-H`` print, and what it says of Open MQ's subcommands that it does not
have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SHORT: Final = """\
usage: imqcmd SUBCOMMAND ARGUMENT [options]

  list    dst    [-t q|t] [-tmp]
  query   dst    -t q|t -n NAME
  create  dst    -t q|t -n NAME [-o PROPERTY=VALUE ...]
  update  dst    -t q|t -n NAME -o PROPERTY=VALUE [-o ...]
  purge   dst    -t q|t -n NAME [-selector SELECTOR] [-o useDMQ=true]
  destroy dst    -t q|t -n NAME [-o useDMQ=true]
  list    msg    -t q -n QUEUE [-selector SELECTOR] [-maxNumMsgsRetrieved N]
  query   msg    -t q -n QUEUE -msgID ID
  list    dur    [-d TOPIC]
  destroy dur    -n SUBSCRIPTION -c CLIENTID
  list    cxn    [-svn SERVICE]
  query   cxn    -n ID
  destroy cxn    -n ID
  list    txn
  query   txn    -n ID
  commit  txn    -n ID
  rollback txn   -n ID
  forget  txn    -n ID
  query   bkr

  -b HOST:PORT     the broker's port mapper; default localhost:7676
  -u NAME          the administrator; asked for if not given
  -passfile FILE   has imq.imqcmd.password; asked for if not given
  -t q|t           queue or topic      -n NAME   of the destination, the subscription, the connection, the transaction
  -o NAME=VALUE    a property: maxNumMsgs, maxTotalMsgBytes, maxBytesPerMsg, limitBehavior, useDMQ,
                   maxNumActiveConsumers (queues), maximumRedeliveries, initialRedeliveryDelay,
                   redeliveryDelay, useExponentialBackOff, backOffMultiplier, maximumRedeliveryDelay;
                   of purge and destroy useDMQ=true: the messages go to mq.sys.dmq, else they are gone
  -tmp             temporary destinations, too
  -selector TEXT   only messages that this JMS selector matches
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

LONG: Final = (
    SHORT
    + """
Examples:

  All destinations of the broker whose port mapper is at myhost:8886, temporary ones, too:
      imqcmd list dst -tmp -b myhost:8886 -u admin

  A queue that holds ten messages and then gives up the oldest to the dead message queue:
      imqcmd create dst -t q -n orders -o maxNumMsgs=10 -o limitBehavior=REMOVE_OLDEST -u admin

  Have the dead message queue of the JMS bridges hand everything over to mq.sys.dmq:
      imqcmd update dst -t q -n imq.bridge.jms.dmq -o maxNumMsgs=0 -o limitBehavior=REMOVE_OLDEST -o useDMQ=true -u admin

  What is dead, and why:
      imqcmd list msg -t q -n mq.sys.dmq -u admin

  Give up what has waited too long, without being asked:
      imqcmd purge dst -t q -n orders -selector "JMSTimestamp < 1700000000000" -f -u admin -passfile /etc/mq/passfile

  Remove a durable subscription that nobody uses any more:
      imqcmd list dur -d quotes -u admin
      imqcmd destroy dur -n mySubscription -c myClientID -u admin

  Branches of XA transactions that their coordinator has prepared, and the end of one whose coordinator is gone:
      imqcmd list txn -u admin
      imqcmd rollback txn -n 4a4d5100.0e74...01.04686572... -u admin

Exit codes: 0 done, also when you answer no; 1 everything else.
"""
)

#: What to do instead of what Open MQ has and this has not.
INSTEAD: Final[Mapping[str, str]] = {
    "pause dst": "pause the STOMP bridge with 'imqbridgemgr pause bridge', or a link with 'imqbridgemgr pause link'",
    "resume dst": "resume the STOMP bridge with 'imqbridgemgr resume bridge', or a link with 'imqbridgemgr resume link'",
    "compact dst": "the store gives its space back by itself",
    "metrics dst": "'query dst' has the counts",
    "metrics bkr": "'query bkr' has the counts",
    "purge dur": "'purge dst' empties all subscriptions of a topic, 'destroy dur' removes one",
    "update bkr": "settings are in the instance's gateway.properties",
    "shutdown bkr": "send the process SIGTERM, or stop its service",
    "restart bkr": "restart its service",
    "pause bkr": "pause the STOMP bridge with 'imqbridgemgr pause bridge'",
    "resume bkr": "resume the STOMP bridge with 'imqbridgemgr resume bridge'",
    "list bkr": "there is no cluster",
    "list svc": "'imqbridgemgr list bridge' lists the services that clients come by",
    "query svc": "'imqbridgemgr list bridge' lists the services that clients come by",
    "pause svc": "pause a bridge with 'imqbridgemgr pause bridge'",
    "resume svc": "resume a bridge with 'imqbridgemgr resume bridge'",
    "update svc": "settings are in the instance's gateway.properties",
}
