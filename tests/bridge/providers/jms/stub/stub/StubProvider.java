package stub;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.lang.ref.WeakReference;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Deque;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Hashtable;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import javax.jms.*;
import javax.jms.IllegalStateException;
import javax.naming.Context;
import javax.naming.NameNotFoundException;
import javax.naming.spi.InitialContextFactory;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

/**
 * A provider in memory, for tests: as strict as JMS 1.1 allows, with the delivery delay of JMS 2.0 for all but the client "jms-1.1", without acknowledgement one by one. Its JNDI knows "cf"; "xa", for
 * XA and nothing else; "denied" and "hangs", whose connections are; "queue" and "topic"; and "text", which is none of these. Some texts cannot be read,
 * nor can properties of a message that has "damaged" or "untold" among them.
 *
 * <p>"count:sessions" is a queue named after the number of XA sessions that anybody still holds, "static:CLASS#FIELD" one named after what that field has.
 *
 * <p>Looking up "control:release" lets go of everything that hangs, "control:fill" takes all memory, "control:fill PERCENT" so much of it, and
 * "control:print TIMES TEXT" prints. "property:NAME" is a queue of the name that a property of the system has, "file:PATH" one that is bound as long as that
 * file exists, and of "found by JNDI" and "file:PATH" the queue is known to JNDI alone.
 */
public final class StubProvider implements InitialContextFactory {
    static final Map<String, Deque<StubMessage>> QUEUES = new HashMap<>();
    static final List<byte[]> FILLED = new ArrayList<>();
    static final Collection<WeakReference<StubXASession>> SESSIONS = new ConcurrentLinkedQueue<>();
    static final ScheduledExecutorService LATER = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });
    private static CountDownLatch never = new CountDownLatch(1);
    static long ids;

    @Override
    public Context getInitialContext(Hashtable<?, ?> environment) {
        InvocationHandler handler = (proxy, method, arguments) -> {
            if (!method.getName().equals("lookup")) {
                return null;
            }
            String name = (String) arguments[0];
            if (name.startsWith("control:")) {
                control(name.substring(8));
                return new StubQueue(name);
            }
            if (name.equals("count:sessions")) {
                return new StubQueue(String.valueOf(sessions()));
            }
            if (name.startsWith("static:")) {
                String[] field = name.substring(7).split("#");
                return new StubQueue(String.valueOf(constant(field[0], field[1])));
            }
            if (name.startsWith("property:")) {
                return new StubQueue(String.valueOf(System.getProperty(name.substring(9))));
            }
            if (name.startsWith("file:") && new File(name.substring(5)).exists()) {
                return new StubQueue(name);
            }
            switch (name) {
                case "found by JNDI":
                    return new StubQueue(name);
                case "cf":
                case "denied":
                case "hangs":
                    return new StubFactory(name);
                case "xa":
                    return new StubXAFactory();
                case "queue":
                    return new StubQueue("physical.queue");
                case "topic":
                    return new StubTopic("physical.topic");
                case "text":
                    return "text";
                case "slow":
                    hang();
                    return null;
                default:
                    throw new NameNotFoundException(name + " is not bound");
            }
        };
        return (Context) Proxy.newProxyInstance(StubProvider.class.getClassLoader(), new Class<?>[] {Context.class}, handler);
    }

    private static void control(String what) {
        if (what.equals("release")) {
            release();
        } else if (what.equals("fill")) {
            while (true) {
                FILLED.add(new byte[1 << 16]);
            }
        } else if (what.startsWith("fill ")) {
            Runtime memory = Runtime.getRuntime();
            long wanted = memory.maxMemory() / 100 * Integer.parseInt(what.substring(5));
            while (memory.totalMemory() - memory.freeMemory() < wanted) {
                FILLED.add(new byte[1 << 16]);
            }
        } else if (what.startsWith("print ")) {
            String[] words = what.split(" ", 3);
            for (int times = Integer.parseInt(words[1]); times > 0; times--) {
                System.out.println(words[2]);
            }
        }
    }

    /** How many XA sessions somebody still holds. */
    private static int sessions() {
        System.gc();
        SESSIONS.removeIf(one -> one.get() == null);
        return SESSIONS.size();
    }

    /** What a static field of the gateway's own classes has. */
    private static Object constant(String type, String name) throws ReflectiveOperationException {
        Field field = Class.forName(type).getDeclaredField(name);
        field.setAccessible(true);
        return field.get(null);
    }

    private static synchronized void release() {
        never.countDown();
        never = new CountDownLatch(1);
    }

    /** Until everything that hangs is let go. */
    static void hang() throws InterruptedException {
        CountDownLatch waiting;
        synchronized (StubProvider.class) {
            waiting = never;
        }
        waiting.await();
    }

    static synchronized String nextId() {
        return "ID:stub-" + ++ids;
    }

    static final class StubFactory implements ConnectionFactory {
        final String name;

        StubFactory(String name) {
            this.name = name;
        }

        @Override
        public Connection createConnection() throws JMSException {
            return createConnection("nobody", "");
        }

        @Override
        public Connection createConnection(String user, String password) throws JMSException {
            if (name.equals("denied")) {
                throw new JMSSecurityException("not with password " + password);
            }
            if (name.equals("hangs")) {
                try {
                    hang();
                } catch (InterruptedException error) {
                    throw new JMSException("interrupted");
                }
            }
            return new StubConnection();
        }
    }

    static class StubConnection implements Connection {
        String clientId;
        ExceptionListener listener;
        boolean closed;

        @Override
        public Session createSession(boolean transacted, int mode) throws JMSException {
            if (closed) {
                throw new IllegalStateException("closed");
            }
            return new StubSession(this, transacted);
        }

        @Override
        public String getClientID() {
            return clientId;
        }

        @Override
        public ConnectionMetaData getMetaData() throws JMSException {
            if ("nameless".equals(clientId)) {
                throw new JMSException("there is no name");
            }
            int version = "jms-1.1".equals(clientId) ? 1 : 2;
            return new ConnectionMetaData() {
                @Override
                public String getJMSProviderName() {
                    return "Stub";
                }

                @Override
                public int getJMSMajorVersion() {
                    return version;
                }
            };
        }

        @Override
        public void setClientID(String clientID) throws JMSException {
            if (clientID.equals("taken")) {
                throw new InvalidClientIDException(clientID);
            }
            clientId = clientID;
        }

        @Override
        public void setExceptionListener(ExceptionListener listener) {
            this.listener = listener;
        }

        @Override
        public void start() {}

        @Override
        public void close() {
            closed = true;
        }
    }

    static final class StubXAFactory implements XAConnectionFactory {
        @Override
        public XAConnection createXAConnection() {
            return new StubXAConnection();
        }

        @Override
        public XAConnection createXAConnection(String user, String password) {
            return new StubXAConnection();
        }
    }

    static final class StubXAConnection extends StubConnection implements XAConnection {
        @Override
        public Session createSession(boolean transacted, int mode) {
            return createXASession();
        }

        @Override
        public XASession createXASession() {
            return new StubXASession(this);
        }
    }

    /** Xids with some format ids are answered in ways of their own. */
    static final class StubXASession extends StubSession implements XASession, XAResource {
        static final int HEURISTIC = 6;
        static final int WITHOUT_CODE = 7;
        static final int HANGING = 8;
        static final Map<Xid, StubXASession> PREPARED = new LinkedHashMap<>();
        private Iterator<Xid> scan;

        StubXASession(StubConnection connection) {
            super(connection, true);
            SESSIONS.add(new WeakReference<>(this));
        }

        @Override
        public XAResource getXAResource() {
            return this;
        }

        @Override
        public void start(Xid xid, int flags) {}

        @Override
        public void end(Xid xid, int flags) {}

        @Override
        public int prepare(Xid xid) throws XAException {
            if (xid.getFormatId() == WITHOUT_CODE) {
                XAException error = new XAException("the disk is on fire");
                error.initCause(new IllegalArgumentException("too hot"));
                throw error;
            }
            if (xid.getFormatId() == HANGING) {
                try {
                    hang();
                } catch (InterruptedException error) {
                    throw new XAException(XAException.XAER_RMFAIL);
                }
            }
            if (sends.isEmpty() && received.isEmpty()) {
                return XA_RDONLY;
            }
            PREPARED.put(xid, this);
            return XA_OK;
        }

        @Override
        public void commit(Xid xid, boolean onePhase) throws XAException {
            if (xid.getFormatId() == HEURISTIC) {
                throw new XAException(XAException.XA_HEURRB);
            }
            found(xid, onePhase).commit();
        }

        @Override
        public void rollback(Xid xid) throws XAException {
            found(xid, true).rollback();
        }

        private StubXASession found(Xid xid, boolean own) throws XAException {
            StubXASession session = PREPARED.remove(xid);
            if (session == null && !own) {
                throw new XAException(XAException.XAER_NOTA);
            }
            return session == null ? this : session;
        }

        /** One at a time, as a provider may. */
        @Override
        public Xid[] recover(int flags) {
            if ((flags & TMSTARTRSCAN) != 0) {
                scan = new ArrayList<>(PREPARED.keySet()).iterator();
            }
            return scan.hasNext() ? new Xid[] {scan.next()} : null;
        }

        @Override
        public void forget(Xid xid) {
            PREPARED.remove(xid);
        }

        @Override
        public boolean isSameRM(XAResource other) {
            return other instanceof StubXASession;
        }

        @Override
        public int getTransactionTimeout() {
            return 0;
        }

        @Override
        public boolean setTransactionTimeout(int seconds) {
            return false;
        }
    }

    static class StubQueue implements Queue {
        final String name;

        StubQueue(String name) {
            this.name = name;
        }

        @Override
        public String getQueueName() {
            return name;
        }
    }

    static final class StubTemporaryQueue extends StubQueue implements TemporaryQueue {
        StubTemporaryQueue(String name) {
            super(name);
        }

        @Override
        public void delete() {}
    }

    static final class StubTopic implements Topic {
        final String name;

        StubTopic(String name) {
            this.name = name;
        }

        @Override
        public String getTopicName() {
            return name;
        }
    }

    static class StubSession implements Session {
        final StubConnection connection;
        final boolean transacted;
        final List<Runnable> sends = new ArrayList<>();
        final List<StubMessage> received = new ArrayList<>();

        StubSession(StubConnection connection, boolean transacted) {
            this.connection = connection;
            this.transacted = transacted;
        }

        @Override
        public BytesMessage createBytesMessage() {
            return new StubBytes();
        }

        @Override
        public MapMessage createMapMessage() {
            return new StubMap();
        }

        @Override
        public Message createMessage() {
            return new StubMessage();
        }

        @Override
        public ObjectMessage createObjectMessage() {
            return new StubObject();
        }

        @Override
        public StreamMessage createStreamMessage() {
            return new StubStream();
        }

        @Override
        public TextMessage createTextMessage() {
            return new StubText();
        }

        @Override
        public void commit() {
            for (Runnable send : sends) {
                send.run();
            }
            sends.clear();
            received.clear();
        }

        @Override
        public void rollback() {
            sends.clear();
            recover();
        }

        @Override
        public void recover() {
            synchronized (QUEUES) {
                Collections.reverse(received);
                for (StubMessage one : received) {
                    one.redelivered = true;
                    QUEUES.get(one.queue).addFirst(one);
                }
                received.clear();
                QUEUES.notifyAll();
            }
        }

        @Override
        public void close() {
            recover();
        }

        @Override
        public MessageProducer createProducer(Destination destination) throws JMSException {
            if (((StubQueue) destination).name.equals("no.such.queue")) {
                throw new InvalidDestinationException("no.such.queue");
            }
            return new StubProducer(this, (StubQueue) destination);
        }

        @Override
        public MessageConsumer createConsumer(Destination destination, String selector) throws JMSException {
            if ("bad".equals(selector)) {
                throw new InvalidSelectorException("bad");
            }
            return new StubConsumer(this, ((StubQueue) destination).name);
        }

        @Override
        public MessageConsumer createConsumer(Destination destination, String selector, boolean noLocal) throws JMSException {
            throw new JMSException("topics have nothing here");
        }

        @Override
        public Queue createQueue(String name) throws JMSException {
            if (name.equals("found by JNDI") || name.startsWith("file:")) {
                throw new InvalidDestinationException(name);
            }
            return new StubQueue(name);
        }

        @Override
        public Topic createTopic(String name) {
            return new StubTopic(name);
        }

        @Override
        public TopicSubscriber createDurableSubscriber(Topic topic, String name, String selector, boolean noLocal) throws JMSException {
            throw new JMSException("topics have nothing here");
        }

        @Override
        public QueueBrowser createBrowser(Queue queue, String selector) throws JMSException {
            throw new JMSException("nothing is browsed here");
        }

        @Override
        public TemporaryQueue createTemporaryQueue() {
            return new StubTemporaryQueue("physical-" + nextId());
        }

        @Override
        public TemporaryTopic createTemporaryTopic() throws JMSException {
            throw new JMSException("topics have nothing here");
        }

        @Override
        public void unsubscribe(String name) throws JMSException {
            throw new InvalidDestinationException(name);
        }
    }

    static final class StubProducer implements MessageProducer {
        final StubSession session;
        final StubQueue queue;
        long delay;

        StubProducer(StubSession session, StubQueue queue) {
            this.session = session;
            this.queue = queue;
        }

        @Override
        public void send(Message message, int deliveryMode, int priority, long timeToLive) throws JMSException {
            StubMessage one = (StubMessage) message;
            if (one.properties.containsKey("refuse")) {
                throw new ResourceAllocationException("refused");
            }
            if (one.properties.containsKey("hang")) {
                try {
                    hang();
                } catch (InterruptedException error) {
                    throw new JMSException("interrupted");
                }
            }
            if (one.properties.containsKey("lose")) {
                new Thread(() -> session.connection.listener.onException(new JMSException("the cable was cut"))).start();
                return;
            }
            one.id = nextId();
            one.timestamp = System.currentTimeMillis();
            one.mode = deliveryMode;
            one.priority = priority;
            one.expiration = timeToLive == 0 ? 0 : one.timestamp + timeToLive;
            one.destination = queue;
            one.queue = queue.name;
            Runnable now = () -> {
                synchronized (QUEUES) {
                    QUEUES.computeIfAbsent(queue.name, name -> new ArrayDeque<>()).add(one);
                    QUEUES.notifyAll();
                }
            };
            long due = delay;
            Runnable send = due == 0 ? now : () -> LATER.schedule(now, due, TimeUnit.MILLISECONDS);
            if (session.transacted) {
                session.sends.add(send);
            } else {
                send.run();
            }
        }

        @Override
        public void setDeliveryDelay(long deliveryDelay) {
            delay = deliveryDelay;
        }

        @Override
        public void close() {}
    }

    static final class StubConsumer implements MessageConsumer {
        final StubSession session;
        final String queue;

        StubConsumer(StubSession session, String queue) {
            this.session = session;
            this.queue = queue;
        }

        @Override
        public Message receive(long timeout) throws JMSException {
            long until = System.currentTimeMillis() + timeout;
            synchronized (QUEUES) {
                Deque<StubMessage> waiting = QUEUES.computeIfAbsent(queue, name -> new ArrayDeque<>());
                for (long left = timeout; waiting.isEmpty() && left > 0; left = until - System.currentTimeMillis()) {
                    try {
                        QUEUES.wait(left);
                    } catch (InterruptedException error) {
                        throw new JMSException("interrupted");
                    }
                }
                StubMessage found = waiting.poll();
                if (found != null) {
                    found.session = session;
                    found.reset();
                    session.received.add(found);
                }
                return found;
            }
        }

        @Override
        public Message receiveNoWait() throws JMSException {
            return receive(0);
        }

        @Override
        public void close() {}
    }

    /** Names that are damaged behind the last. */
    static final class Damaged implements Enumeration<String> {
        private final Enumeration<String> names;

        Damaged(Enumeration<String> names) {
            this.names = names;
        }

        @Override
        public boolean hasMoreElements() {
            return true;
        }

        @Override
        public String nextElement() {
            if (names.hasMoreElements()) {
                return names.nextElement();
            }
            throw new java.lang.IllegalStateException("the names end too soon");
        }
    }

    /** What has not even a text. */
    static final class Untold {
        @Override
        public String toString() {
            throw new java.lang.IllegalStateException("it has no text");
        }
    }

    static class StubMessage implements Message {
        final Map<String, Object> properties = new LinkedHashMap<>();
        StubSession session;
        Destination destination;
        Destination replyTo;
        String queue;
        String id;
        String correlationId;
        String type;
        long timestamp;
        long expiration;
        int mode;
        int priority;
        boolean redelivered;

        public void reset() throws JMSException {}

        @Override
        public void clearProperties() {
            properties.clear();
        }

        @Override
        public void clearBody() {}

        @Override
        public String getJMSMessageID() {
            return id;
        }

        @Override
        public void setJMSMessageID(String id) {
            this.id = id;
        }

        @Override
        public long getJMSTimestamp() {
            return timestamp;
        }

        @Override
        public void setJMSTimestamp(long timestamp) {
            this.timestamp = timestamp;
        }

        @Override
        public String getJMSCorrelationID() {
            return correlationId;
        }

        @Override
        public void setJMSCorrelationID(String correlationID) {
            correlationId = correlationID;
        }

        @Override
        public Destination getJMSReplyTo() {
            return replyTo;
        }

        @Override
        public void setJMSReplyTo(Destination replyTo) {
            this.replyTo = replyTo;
        }

        @Override
        public Destination getJMSDestination() {
            return destination;
        }

        @Override
        public void setJMSDestination(Destination destination) {
            this.destination = destination;
        }

        @Override
        public int getJMSDeliveryMode() {
            return mode;
        }

        @Override
        public void setJMSDeliveryMode(int deliveryMode) {
            mode = deliveryMode;
        }

        @Override
        public boolean getJMSRedelivered() {
            return redelivered;
        }

        @Override
        public String getJMSType() {
            return type;
        }

        @Override
        public void setJMSType(String type) {
            this.type = type;
        }

        @Override
        public long getJMSExpiration() {
            return expiration;
        }

        @Override
        public void setJMSExpiration(long expiration) {
            this.expiration = expiration;
        }

        @Override
        public int getJMSPriority() {
            return priority;
        }

        @Override
        public void setJMSPriority(int priority) {
            this.priority = priority;
        }

        @Override
        public boolean propertyExists(String name) {
            return properties.containsKey(name);
        }

        @Override
        public int getIntProperty(String name) {
            return ((Number) properties.get(name)).intValue();
        }

        @Override
        public Object getObjectProperty(String name) {
            return name.equals("untold") ? new Untold() : properties.get(name);
        }

        @Override
        public Enumeration getPropertyNames() {
            Enumeration<String> names = Collections.enumeration(properties.keySet());
            return properties.containsKey("damaged") ? new Damaged(names) : names;
        }

        @Override
        public void setObjectProperty(String name, Object value) throws JMSException {
            for (char unit : name.toCharArray()) {
                if (!Character.isJavaIdentifierPart(unit)) {
                    throw new JMSException(name + " is no identifier");
                }
            }
            properties.put(name, value);
        }

        @Override
        public void setStringProperty(String name, String value) throws JMSException {
            setObjectProperty(name, value);
        }

        @Override
        public String getStringProperty(String name) {
            return (String) properties.get(name);
        }

        @Override
        public void acknowledge() {
            session.received.clear();
        }
    }

    static final class StubText extends StubMessage implements TextMessage {
        private String text;

        @Override
        public String getText() {
            if (text.equals("a class is missing")) {
                throw new NoClassDefFoundError("some/Missing");
            }
            if (text.equals("memory is short")) {
                throw new OutOfMemoryError("Requested array size exceeds VM limit");
            }
            return text;
        }

        @Override
        public void setText(String text) {
            this.text = text;
        }

        @Override
        public void clearBody() {
            text = null;
        }
    }

    static final class StubBytes extends StubMessage implements BytesMessage {
        private final ByteArrayOutputStream octets = new ByteArrayOutputStream();
        private boolean readOnly;

        @Override
        public void reset() {
            readOnly = true;
        }

        @Override
        public void clearBody() {
            octets.reset();
            readOnly = false;
        }

        @Override
        public long getBodyLength() {
            return octets.size();
        }

        @Override
        public int readBytes(byte[] value) {
            System.arraycopy(octets.toByteArray(), 0, value, 0, octets.size());
            return octets.size();
        }

        @Override
        public void writeBytes(byte[] value) throws JMSException {
            if (readOnly) {
                throw new MessageNotWriteableException("after reset()");
            }
            octets.write(value, 0, value.length);
        }
    }

    static final class StubMap extends StubMessage implements MapMessage {
        private final Map<String, Object> entries = new LinkedHashMap<>();

        @Override
        public Object getObject(String name) {
            return entries.get(name);
        }

        @Override
        public Enumeration getMapNames() {
            return Collections.enumeration(entries.keySet());
        }

        @Override
        public void setObject(String name, Object value) {
            entries.put(name, value);
        }

        @Override
        public void clearBody() {
            entries.clear();
        }
    }

    static final class StubStream extends StubMessage implements StreamMessage {
        private final List<Object> items = new ArrayList<>();
        private int at;

        @Override
        public void reset() {
            at = 0;
        }

        @Override
        public void clearBody() {
            items.clear();
        }

        @Override
        public Object readObject() throws JMSException {
            if (at == items.size()) {
                throw new MessageEOFException("the end");
            }
            return items.get(at++);
        }

        @Override
        public void writeObject(Object value) {
            items.add(value);
        }
    }

    static final class StubObject extends StubMessage implements ObjectMessage {
        private byte[] data;

        @Override
        public void setObject(Serializable object) throws JMSException {
            try {
                ByteArrayOutputStream octets = new ByteArrayOutputStream();
                ObjectOutputStream out = new ObjectOutputStream(octets);
                out.writeObject(object);
                out.flush();
                data = octets.toByteArray();
            } catch (IOException error) {
                throw new JMSException(error.toString());
            }
        }

        @Override
        public Serializable getObject() throws JMSException {
            try {
                return (Serializable) new ObjectInputStream(new ByteArrayInputStream(data)).readObject();
            } catch (IOException | ClassNotFoundException error) {
                throw new JMSException(error.toString());
            }
        }
    }
}
