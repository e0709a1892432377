"""The names of Open MQ's broker properties.

They are for the warning that one of them has no effect here.

Owns the table, and what is said of the names that somebody might rely on. The table follows the
alphabetical list of the original's broker properties reference and the names its instance files
hold. A name that some package declares as a setting is found there first, so it does no harm that
it is here as well.
"""

from __future__ import annotations

import re

from gateway.instance.declaration import RESERVED_BRIDGE_NAMES

# Below `imq.`; `*` stands for any text, for what the operator names: a service, a database vendor,
# a number. `BRIDGE` is one word that a bridge can be called. What every bridge has and we have too
# is declared elsewhere and left out, so that it is not taken for a name of the original where no
# bridge can be meant.
_BELOW_IMQ = """
accesscontrol.enabled accesscontrol.file.dirpath accesscontrol.file.filename accesscontrol.file.url accesscontrol.type
admincreate.topic.sharedConsumerFlowLimit
audit.bsm.disabled audit.enabled
authentication.basic.user_repository authentication.client.response.timeout authentication.digest.user_repository authentication.type
autocreate.destination.isLocalOnly autocreate.destination.limitBehavior autocreate.destination.maxBytesPerMsg
autocreate.destination.maxNumMsgs autocreate.destination.maxNumProducers autocreate.destination.maxTotalMsgBytes
autocreate.destination.useDMQ autocreate.queue autocreate.queue.consumerFlowLimit autocreate.queue.localDeliveryPreferred
autocreate.queue.maxNumActiveConsumers autocreate.queue.maxNumBackupConsumers autocreate.reaptime autocreate.topic
autocreate.topic.consumerFlowLimit autocreate.topic.sharedConsumerFlowLimit
bridge.activelist bridge.admin.password bridge.admin.user bridge.enabled bridge.managerclass bridge.tm.class bridge.tm.props
bridge.BRIDGE.class bridge.BRIDGE.libhome bridge.BRIDGE.tm.class bridge.BRIDGE.tm.props bridge.BRIDGE.varhome bridge.BRIDGE.xmlurl
broker.adminDefinedRoles.count broker.adminDefinedRoles.name* brokerid
cluster.brokerlist cluster.brokerlist.manual cluster.clusterid cluster.dynamicChangeMasterBrokerEnabled cluster.ha
cluster.ha.takeoverWaitTimeout cluster.heartbeat.* cluster.hostname cluster.locktimeout cluster.masterbroker
cluster.masterbroker.enforce cluster.monitor.interval cluster.monitor.threshold cluster.nomasterbroker cluster.port
cluster.sharecc.persist cluster.sharecc.persistCreate cluster.sharecc.persist.jdbc.* cluster.transport cluster.url
config.class config.version instanceconfig.version
debug.* dump.packet.debug dump.packet.debugall
destination.DMQ.truncateBody destination.logDeadMsgs
embedded.* hostname imqbridgemgr.password imqcmd.password instancename varhome home libhome etchome instanceshome
jmx.connector.activelist jmx.connector.list jmx.connector.*.brokerHostTrusted jmx.connector.*.port jmx.connector.*.urlpath
jmx.connector.*.useSSL jmx.enabled jmx.hostname jmx.rmiregistry.port jmx.rmiregistry.start jmx.rmiregistry.use
jmx.usePlatformMBeanServer
keystore.file.dirpath keystore.file.name keystore.password
log.console.class log.console.output log.console.stream log.destination.* log.file.class log.file.dirpath log.file.filename
log.file.output log.file.rolloverbytes log.file.rolloversecs log.handlers log.jmx.class log.jmx.output log.level log.syslog.*
log.timezone
memory.gcdelta memory.hysteresis memory.levels memory.overhead
message.expiration.interval message.max_size
metrics.enabled metrics.interval metrics.topic.enabled metrics.topic.interval metrics.topic.persist metrics.topic.timetolive
passfile.dirpath passfile.enabled passfile.name
persist.file.destination.file.size persist.file.destination.message.filepool.limit persist.file.message.* persist.file.newTxnLog.enabled
persist.file.sync.all persist.file.sync.enabled persist.file.transaction.memorymappedfile.enabled persist.file.txnLog.*
persist.jdbc.* persist.store
ping.enabled ping.interval
portmapper.backlog portmapper.bind portmapper.hostname portmapper.leastInfo portmapper.max_threads portmapper.min_threads
portmapper.port portmapper.solinger portmapper.sotimeout portmapper.tls.enabled portunif.enabled
primaryowner.contact primaryowner.name
protocol.list protocol.*.inbufsz protocol.*.outbufsz protocol.*.nodelay protocol.*.class protocol.*.propertylist
queue.deliverypolicy queue.rr.messageblock restart.code selectors.limit
green.* yellow.* orange.* red.*
service.activelist service.list service.runtimeAdd service_handler.*.class shared.connectionMonitor_limit
system.max_count system.max_size
transaction.autorollback transaction.consumer.maxNumMsgs transaction.message.maxConsecutiveRollbacks transaction.producer.maxNumMsgs
user_repository.file.dirpath user_repository.file.filename user_repository.file.groupPrincipalClass
user_repository.file.userPrincipalClass user_repository.jaas.* user_repository.ldap.*
jms.* ssljms.* httpjms.* httpsjms.* wsjms.* wssjms.* jmsdirect.* mqdirect.* mqdirect2.* admin.* ssladmin.*
*.accesscontrol.enabled *.accesscontrol.file.filename *.accesscontrol.type *.authentication.type *.max_threads *.min_threads
*.protocoltype *.servicetype *.threadpool_model *.tcp.hostname *.tcp.port *.tls.hostname *.tls.port
"""

# The Java virtual machine's, and those of its logging, which stood in the same file or came by the
# same -D.
_OTHERS = (
    "java.* javax.* jakarta.* sun.* com.sun.* org.glassfish.* handlers .level user.* file.encoding"
)


def _pattern(names: list[str]) -> re.Pattern[str]:
    bridge = rf"(?!(?i:{'|'.join(RESERVED_BRIDGE_NAMES)})\.)[^.]+"
    return re.compile(
        "|".join(re.escape(name).replace(r"\*", ".+").replace("BRIDGE", bridge) for name in names)
    )


_KNOWN = _pattern([f"imq.{name}" for name in _BELOW_IMQ.split()] + _OTHERS.split())


# What is trusted to open or to close the broker, and does not.
_SAID_OF = {
    r"imq\.(.+\.)?accesscontrol\.enabled": "has no effect in this gateway: the rules of etc/accesscontrol.properties always hold here; "
    "those of a new instance allow every user to connect and to use every destination",
    r"imq\.(.+\.)?authentication\.type": "has no effect in this gateway: every client is asked for the name and passcode of a user in etc/users, or, "
    "with imq.bridge.stomp.tls.certificateLogin, for a certificate",
    r"imq\.authentication\.(basic|digest)\.user_repository": "has no effect in this gateway: the users are those of the file etc/users, which imqusermgr "
    "looks after",
    r"imq\.accesscontrol\.(type|file\..+)": "has no effect in this gateway: access rules are those of the instance's etc/accesscontrol.properties",
}


def said_of(name: str) -> str:
    """Return what to say where this property of the original is given.

    It is read after the property.
    """
    for pattern, sentence in _SAID_OF.items():
        if re.fullmatch(pattern, name):
            return sentence
    return "has no effect in this gateway"


def is_of_the_original(name: str) -> bool:
    """Whether Open MQ's broker knows a property of this name.

    Or the Java virtual machine that ran it does.
    """
    return _KNOWN.fullmatch(name) is not None
