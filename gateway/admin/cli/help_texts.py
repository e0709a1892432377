"""What ``imqbridgemgr -h`` and ``-H`` print."""

from __future__ import annotations

from typing import Final

SHORT: Final = """\
usage: imqbridgemgr SUBCOMMAND ARGUMENT [options]

  list    bridge [-bn NAME] [-t TYPE]
  list    link   -bn NAME [-ln NAME]
  query   link   -bn NAME [-ln NAME]
  watch   bridge [-t TYPE], watch link -bn NAME [-ln NAME]
  start   bridge [-bn NAME] [-t TYPE], start link -bn NAME -ln NAME
  stop    bridge [-bn NAME] [-t TYPE], stop link -bn NAME -ln NAME
  pause   bridge -bn NAME or -t TYPE, pause link -bn NAME -ln NAME
  resume  bridge -bn NAME or -t TYPE, resume link -bn NAME -ln NAME
  reload  bridge -bn NAME
  level   bridge -bn NAME [-level LEVEL]
  list    dead   [-bn NAME -dmq NAME] [-selector SELECTOR] [-limit N]
  replay  dead   [-bn NAME -dmq NAME] [-selector SELECTOR] [-to queue:NAME] [-limit N] [-dry-run]
  purge   dead   [-bn NAME -dmq NAME] [-selector SELECTOR] [-limit N] [-dry-run]
  list    transactions -bn NAME
  commit  transaction -bn NAME -tid ID, rollback and forget likewise
  validate FILE  [-bn NAME]

  -b HOST:PORT     the broker's port mapper; default localhost:7676
  -u NAME          the administrator; asked for if not given
  -passfile FILE   has imq.imqbridgemgr.password; asked for if not given
  -bn NAME         the bridge          -ln NAME   the link
  -t TYPE          jms or stomp        -debug     more tables
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

LONG: Final = (
    SHORT
    + """
Examples:

  All bridges of type JMS on the broker whose port mapper is at myhost:8886:
      imqbridgemgr list bridge -t jms -b myhost:8886 -u admin

  Start a bridge without being asked:
      imqbridgemgr start bridge -bn mq2external -f -u admin -passfile /etc/mq/passfile

  What a link does, how fast, and what went wrong last:
      imqbridgemgr query link -bn mq2external -ln link1 -u admin

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
