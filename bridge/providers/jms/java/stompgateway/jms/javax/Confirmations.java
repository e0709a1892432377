package stompgateway.jms.javax;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import javax.jms.Connection;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageProducer;

/**
 * Sends in a branch that the broker confirms one by one, while the next are under way. In a transaction ActiveMQ's client does not wait for an answer to a send.
 * The broker tells of a refusal later, on another way, and prepares the branch without the message all the same.
 */
final class Confirmations {
    private static final String CALLBACK = "org.apache.activemq.AsyncCallback";

    private final Class<?> callback;
    private final Method send;
    private int sent;
    private int answered;
    private int refusedAt = -1;
    private JMSException refusal;

    private Confirmations(Class<?> callback, Method send) {
        this.callback = callback;
        this.send = send;
    }

    /** @return null where there is no such thing, as the provider's sends fail by themselves */
    static Confirmations of(Connection connection) {
        try {
            ClassLoader loader = connection.getClass().getClassLoader();
            Class<?> callback = Class.forName(CALLBACK, false, loader);
            Class<?> producer = Class.forName("org.apache.activemq.ActiveMQMessageProducer", false, loader);
            Method send = producer.getMethod("send", Destination.class, Message.class, int.class, int.class, long.class, callback);
            return new Confirmations(callback, send);
        } catch (ReflectiveOperationException | LinkageError error) {
            return null;
        }
    }

    /** Send, and go on before it is confirmed. @throws JMSException it cannot be sent at all */
    void send(MessageProducer producer, Destination destination, Message message, int mode, int priority, long timeToLive) throws JMSException {
        int index = sent;
        Object told = Proxy.newProxyInstance(callback.getClassLoader(), new Class<?>[] {callback}, (proxy, method, arguments) -> {
            switch (method.getName()) {
                case "onSuccess":
                    answered(index, null);
                    return null;
                case "onException":
                    answered(index, (JMSException) arguments[0]);
                    return null;
                case "equals":
                    return proxy == arguments[0];
                case "hashCode":
                    return System.identityHashCode(proxy);
                default:
                    return CALLBACK;
            }
        });
        try {
            send.invoke(producer, destination, message, mode, priority, timeToLive, told);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof JMSException) {
                throw (JMSException) error.getCause();
            }
            throw new IllegalStateException(error.getCause());
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
        sent++;
    }

    private synchronized void answered(int index, JMSException error) {
        answered++;
        if (error != null && (refusal == null || index < refusedAt)) {
            refusal = error;
            refusedAt = index;
        }
        notifyAll();
    }

    /**
     * Wait until all that was sent since the last call is confirmed.
     *
     * @return the index of the first that is refused, among these; -1: none
     */
    synchronized int await() {
        boolean interrupted = false;
        while (answered < sent) {
            try {
                wait();
            } catch (InterruptedException error) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return refusedAt;
    }

    /** Why that one is refused. */
    synchronized JMSException refusal() {
        return refusal;
    }

    /** Count from 0 again. */
    synchronized void begin() {
        sent = answered = 0;
        refusedAt = -1;
        refusal = null;
    }
}
