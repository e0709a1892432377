package stompgateway.jms.javax;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.concurrent.atomic.AtomicInteger;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import stompgateway.jms.Heap;

/**
 * How many messages ActiveMQ's client fetches ahead of a consumer of a queue or of a durable subscription. It bounds their number, to 1,000 of a queue, whatever
 * their size; a backlog of large ones would fill the heap. So a consumer begins with one, and then has as many as fit, by the size of those that came. Where the
 * operator has set a prefetch, for topics without a durable subscription, whose brokers may drop what is not fetched, and for other providers this does nothing.
 */
final class Prefetch {
    /** The most of any consumer; the gateway lowers it when a heap was full all the same. */
    private static final int MOST = Integer.getInteger("stompgateway.ahead", 1000);
    /** A message takes so much more than its body and headers. */
    private static final int OVERHEAD = 1024;
    private static final int FIRST = 1;
    /** Browsers do not say how large what they fetch is. */
    private static final int BROWSER = 16;
    /** Consumers of all connections, which share the heap. */
    private static final AtomicInteger CONSUMERS = new AtomicInteger();

    private final Connection connection;
    private final int most;
    private MessageConsumer consumer;
    private int current = FIRST;
    private long largest = 1;
    /** It was looked whether this is not ours to set, and is not. */
    private boolean given;
    private boolean fixed;

    private Prefetch(Connection connection, int most) {
        this.connection = connection;
        this.most = most;
    }

    /** Which prefetches of a connection the operator has not set, and their defaults. */
    static final class Policy {
        private final Connection connection;
        private final int queue;
        private final int durable;

        private Policy(Connection connection, int queue, int durable) {
            this.connection = connection;
            this.queue = queue;
            this.durable = durable;
        }

        /**
         * Begin with few. The connection gets a policy of its own, as all connections of a factory share the factory's.
         *
         * @param connection ActiveMQ's, before its first consumer
         */
        static Policy of(Connection connection) throws ReflectiveOperationException {
            Object shared = connection.getClass().getMethod("getPrefetchPolicy").invoke(connection);
            Class<?> type = shared.getClass();
            Object defaults = type.getConstructor().newInstance();
            Object policy = type.getConstructor().newInstance();
            for (String name : new String[] {"TopicPrefetch", "OptimizeDurableTopicPrefetch", "QueuePrefetch", "DurableTopicPrefetch", "QueueBrowserPrefetch"}) {
                type.getMethod("set" + name, int.class).invoke(policy, type.getMethod("get" + name).invoke(shared));
            }
            Object limit = type.getMethod("getMaximumPendingMessageLimit").invoke(shared);
            type.getMethod("setMaximumPendingMessageLimit", int.class).invoke(policy, limit);
            Policy found = new Policy(connection, ours(policy, defaults, "QueuePrefetch", FIRST), ours(policy, defaults, "DurableTopicPrefetch", FIRST));
            ours(policy, defaults, "QueueBrowserPrefetch", BROWSER);
            connection.getClass().getMethod("setPrefetchPolicy", type).invoke(connection, policy);
            return found;
        }

        /** @return the default that was in force and is replaced, or 0: the operator has set another */
        private static int ours(Object policy, Object defaults, String name, int first) throws ReflectiveOperationException {
            Method get = policy.getClass().getMethod("get" + name);
            int given = (Integer) get.invoke(policy);
            if (given != (Integer) get.invoke(defaults)) {
                return 0;
            }
            policy.getClass().getMethod("set" + name, int.class).invoke(policy, first);
            return Math.min(MOST, given);
        }

        /** For a consumer that is about to be opened, or null: it is not ours to set. */
        Prefetch of(boolean topic, boolean durable) {
            int most = durable ? this.durable : topic ? 0 : queue;
            return most == 0 ? null : new Prefetch(connection, most);
        }
    }

    /** The consumer is open, be it anew. */
    void opened(MessageConsumer opened) throws JMSException {
        if (consumer == null) {
            CONSUMERS.incrementAndGet();
        }
        consumer = opened;
        if (!given) {
            // Its destination's name may set one, too: QUEUE?consumer.prefetchSize=10.
            fixed = current == FIRST && (Integer) info("getPrefetchSize") != FIRST;
            given = true;
        }
        if (current != FIRST && !fixed) {
            set(current);
        }
    }

    /** It is closed for good. */
    void closed() {
        if (consumer != null) {
            consumer = null;
            CONSUMERS.decrementAndGet();
        }
    }

    /** A message of this size has come. */
    void measured(int octets) throws JMSException {
        if (fixed) {
            return;
        }
        largest = Math.max(octets + OVERHEAD, largest - largest / 256);
        long room = Math.min(Heap.largest() / 8, Heap.largest() / 4 / Math.max(1, CONSUMERS.get()));
        int wanted = (int) Math.max(1, Math.min(most, room / largest));
        if (wanted < current || wanted >= 2 * current || wanted == most && current < most) {
            set(wanted);
        }
    }

    /** Tell the client, which settles by it how often it acknowledges, and the broker. */
    private void set(int wanted) throws JMSException {
        current = wanted;
        try {
            Class<?> type = consumer.getClass();
            Field field = field(type, "info");
            Object info = field.get(consumer);
            method(type, "setPrefetchSize", int.class).invoke(consumer, wanted);
            info.getClass().getMethod("setPrefetchSize", int.class).invoke(info, wanted);
            ClassLoader loader = type.getClassLoader();
            Class<?> controls = loader.loadClass("org.apache.activemq.command.ConsumerControl");
            Object control = controls.getConstructor().newInstance();
            Object id = info.getClass().getMethod("getConsumerId").invoke(info);
            Object destination = info.getClass().getMethod("getDestination").invoke(info);
            controls.getMethod("setConsumerId", id.getClass()).invoke(control, id);
            controls.getMethod("setDestination", loader.loadClass("org.apache.activemq.command.ActiveMQDestination")).invoke(control, destination);
            controls.getMethod("setPrefetch", int.class).invoke(control, wanted);
            connection.getClass().getMethod("asyncSendPacket", loader.loadClass("org.apache.activemq.command.Command")).invoke(connection, control);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof JMSException) {
                throw (JMSException) error.getCause();
            }
            throw new IllegalStateException(error.getCause());
        } catch (ReflectiveOperationException error) {
            // A consumer of another kind than is known: it keeps what it has, which is slow and safe.
            fixed = true;
        }
    }

    /** What the client knows of the consumer; 0 where it is of another kind than is known. */
    private Object info(String getter) {
        try {
            Object info = field(consumer.getClass(), "info").get(consumer);
            return info.getClass().getMethod(getter).invoke(info);
        } catch (ReflectiveOperationException error) {
            return 0;
        }
    }

    static Field field(Class<?> type, String name) throws NoSuchFieldException {
        for (Class<?> one = type; one != null; one = one.getSuperclass()) {
            try {
                Field found = one.getDeclaredField(name);
                found.setAccessible(true);
                return found;
            } catch (NoSuchFieldException error) {
                // Perhaps its base class has it.
                continue;
            }
        }
        throw new NoSuchFieldException(name);
    }

    private static Method method(Class<?> type, String name, Class<?>... parameters) throws NoSuchMethodException {
        for (Class<?> one = type; one != null; one = one.getSuperclass()) {
            try {
                Method found = one.getDeclaredMethod(name, parameters);
                found.setAccessible(true);
                return found;
            } catch (NoSuchMethodException error) {
                // Perhaps its base class has it.
                continue;
            }
        }
        throw new NoSuchMethodException(name);
    }
}
