package stompgateway.jms.javax;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.Session;

/**
 * What ActiveMQ offers beyond the JMS API, found by name: an acknowledgement that has been answered, one for all deliveries of a session,
 * redelivery at once and without end, a prefetch that fits into the heap, and sends in a branch that are answered. For any other provider this does nothing.
 */
final class Vendor {
    private final Object connection;
    private final Method setSendAcksAsync;
    private final boolean activemq;
    private Prefetch.Policy prefetch;
    private Confirmations confirmations;

    Vendor(Connection connection) {
        this.connection = connection;
        Method found = null;
        activemq = connection.getClass().getName().startsWith("org.apache.activemq.ActiveMQ");
        if (activemq) {
            try {
                found = connection.getClass().getMethod("setSendAcksAsync", boolean.class);
                prefetch = Prefetch.Policy.of(connection);
                redeliverAtOnce(connection.getClass().getMethod("getRedeliveryPolicy").invoke(connection));
            } catch (ReflectiveOperationException | RuntimeException error) {
                // Another version than is known: without these it is like any other provider.
                found = null;
            }
        }
        setSendAcksAsync = found;
    }

    /** Unless the operator has set a policy: what is rolled back comes again at once, as often as that happens. */
    private static void redeliverAtOnce(Object policy) throws ReflectiveOperationException {
        Class<?> type = policy.getClass();
        boolean untouched = ((Number) type.getMethod("getInitialRedeliveryDelay").invoke(policy)).longValue() == 1000
                && ((Number) type.getMethod("getMaximumRedeliveries").invoke(policy)).intValue() == 6;
        if (untouched) {
            type.getMethod("setInitialRedeliveryDelay", long.class).invoke(policy, 0L);
            type.getMethod("setRedeliveryDelay", long.class).invoke(policy, 0L);
            type.getMethod("setMaximumRedeliveries", int.class).invoke(policy, -1);
        }
    }

    /**
     * Whether a session forgets what it has received in a branch when it is associated with the next one, so that a rollback does not give it back
     * before the consumer is closed.
     */
    boolean forgetsReceipts() {
        return activemq;
    }

    /** For the sends of a session's branches, or null where these fail by themselves. */
    synchronized Confirmations confirmations() {
        if (activemq && confirmations == null) {
            confirmations = Confirmations.of((Connection) connection);
        }
        return confirmations;
    }

    /** How far ahead a consumer is that is about to be opened, or null: that is not ours to say. */
    Prefetch prefetch(boolean topic, boolean durable) {
        return prefetch == null ? null : prefetch.of(topic, durable);
    }

    /** What an acknowledgement does. */
    interface Acknowledgement {
        void run() throws JMSException;
    }

    /** Make an acknowledgement that returns when the provider has it. */
    void answered(Acknowledgement acknowledgement) throws JMSException {
        if (setSendAcksAsync == null) {
            acknowledgement.run();
            return;
        }
        synchronized (this) {
            set(false);
            try {
                acknowledgement.run();
            } finally {
                set(true);
            }
        }
    }

    private void set(boolean async) {
        try {
            setSendAcksAsync.invoke(connection, async);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The one acknowledgement of all that the session has delivered, or null where there is no such thing. */
    Acknowledgement ofAll(final Session session) {
        if (setSendAcksAsync == null) {
            return null;
        }
        final Method all;
        try {
            all = session.getClass().getMethod("acknowledge");
        } catch (NoSuchMethodException error) {
            return null;
        }
        return () -> {
            try {
                all.invoke(session);
            } catch (InvocationTargetException error) {
                if (error.getCause() instanceof JMSException) {
                    throw (JMSException) error.getCause();
                }
                throw new IllegalStateException(error.getCause());
            } catch (IllegalAccessException error) {
                throw new IllegalStateException(error);
            }
        };
    }

    /** Wait until the provider has done all that the connection told it without waiting. */
    void confirm(Session session) throws JMSException {
        if (setSendAcksAsync != null) {
            // That is answered, and commands of one connection are done in order.
            session.createProducer(null).close();
        }
    }
}
