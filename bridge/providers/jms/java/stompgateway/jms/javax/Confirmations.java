package stompgateway.jms.javax;

import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.MessageProducer;

/**
 * What ActiveMQ's broker says of the sends of a connection. In a transaction its client does not wait for an answer to a send; the broker tells of a refusal later, on
 * another way, and prepares a branch without the message all the same. A request for each message would have the broker write each to the disk at once. With a
 * window it acknowledges each that it has taken, and writes them when the branch is prepared.
 */
final class Confirmations {
    /** Milliseconds between two looks at whether the connection was closed, of which nothing tells. */
    private static final long LOOK = 200;

    private final Connection connection;
    private final Method closed;
    private final Method producer;
    private final Method exception;
    /** By the producer's id, of those that send in branches: how many messages are not confirmed. */
    private final Map<Object, int[]> outstanding = new HashMap<>();
    private Throwable failure;

    private Confirmations(Connection connection) throws ReflectiveOperationException {
        this.connection = connection;
        closed = connection.getClass().getMethod("isClosed");
        ClassLoader loader = connection.getClass().getClassLoader();
        producer = Class.forName("org.apache.activemq.command.ProducerAck", false, loader).getMethod("getProducerId");
        exception = Class.forName("org.apache.activemq.command.ConnectionError", false, loader).getMethod("getException");
    }

    /** @param connection ActiveMQ's, before its first producer. @return null where it is of another version than is known */
    static Confirmations of(Connection connection) {
        try {
            Class<?> type = connection.getClass();
            Confirmations made = new Confirmations(connection);
            Class<?> listener = Class.forName("org.apache.activemq.transport.TransportListener", false, type.getClassLoader());
            Object told = Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {listener}, (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "onCommand":
                        made.told(arguments[0]);
                        return null;
                    case "onException":
                        made.failed((Throwable) arguments[0]);
                        return null;
                    case "transportInterupted":
                        made.failed(new IOException("the connection was interrupted, and what was under way may be lost"));
                        return null;
                    case "equals":
                        return proxy == arguments[0];
                    case "hashCode":
                        return System.identityHashCode(proxy);
                    case "toString":
                        return "confirmations";
                    default:
                        return null;
                }
            });
            // Its use as a bound is not wanted.
            type.getMethod("setProducerWindowSize", int.class).invoke(connection, Integer.MAX_VALUE);
            type.getMethod("addTransportListener", listener).invoke(connection, told);
            return made;
        } catch (ReflectiveOperationException | RuntimeException | LinkageError error) {
            return null;
        }
    }

    private void told(Object command) throws ReflectiveOperationException {
        if (producer.getDeclaringClass().isInstance(command)) {
            taken(producer.invoke(command));
        } else if (exception.getDeclaringClass().isInstance(command)) {
            failed((Throwable) exception.invoke(command));
        }
    }

    private synchronized void failed(Throwable error) {
        if (failure == null) {
            failure = error;
        }
        notifyAll();
    }

    private synchronized void taken(Object producer) {
        int[] count = outstanding.get(producer);
        if (count != null && --count[0] == 0) {
            notifyAll();
        }
    }

    /** @return its id, by which its messages are counted from now on */
    Object opened(MessageProducer producer) {
        try {
            Object info = Prefetch.field(producer.getClass(), "info").get(producer);
            Object id = info.getClass().getMethod("getProducerId").invoke(info);
            synchronized (this) {
                outstanding.put(id, new int[1]);
            }
            return id;
        } catch (ReflectiveOperationException error) {
            throw new java.lang.IllegalStateException("this version of ActiveMQ's client does not tell who sends: " + error);
        }
    }

    synchronized void closed(Collection<Object> producers) {
        outstanding.keySet().removeAll(producers);
    }

    /** This one is about to send a message. */
    synchronized void sends(Object producer) {
        outstanding.get(producer)[0]++;
    }

    private int left(Collection<Object> producers) {
        int left = 0;
        for (Object one : producers) {
            left += outstanding.get(one)[0];
        }
        return left;
    }

    /**
     * Wait until all that these have sent is confirmed.
     *
     * @return how many messages are not; the first of them is refused, or lost with the connection
     */
    synchronized int await(Collection<Object> producers) {
        boolean interrupted = false;
        try {
            while (left(producers) > 0 && failure == null && !Boolean.TRUE.equals(closed.invoke(connection))) {
                try {
                    wait(LOOK);
                } catch (InterruptedException error) {
                    interrupted = true;
                }
            }
        } catch (ReflectiveOperationException error) {
            failed(error);
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return left(producers);
    }

    /** Why not. */
    synchronized JMSException failure() {
        if (failure instanceof JMSException) {
            return (JMSException) failure;
        }
        JMSException made = new javax.jms.IllegalStateException("the connection has ended: " + failure);
        made.initCause(failure);
        return made;
    }
}
