package stompgateway.jms.javax;

import java.util.ArrayDeque;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Queue;
import javax.jms.QueueBrowser;
import javax.jms.Session;
import javax.jms.Topic;
import stompgateway.jms.Failure;

/** A consumer or browser: its credit, and what it has delivered and is not settled. */
final class Receiver {
    /** How long to wait for a message that was rolled back and must come again, in milliseconds. */
    private static final long PATIENCE = 10_000;

    final int id;
    Session session;
    final boolean ownSession;
    final Destination destination;
    final boolean topic;
    /** Of the durable subscription, or null. */
    String durable;
    boolean running;
    /** Nobody wants more; what was delivered may still be settled. */
    boolean leaving;
    long credit;
    /** Octets that may still be delivered, where somebody counts them. */
    long octets = Long.MAX_VALUE;
    /** By key, those that the provider takes as delivered. */
    final Map<Long, Delivery> outstanding = new LinkedHashMap<>();
    /** Those that were rolled back only so that others could be committed: they come again, and are not delivered twice. */
    final ArrayDeque<Delivery> expected = new ArrayDeque<>();
    /** How often those that were rolled back only so that others could be committed were, by message id. */
    private final Map<String, Integer> redone = new HashMap<>();
    private long nextKey = 1;
    private String selector;
    private boolean noLocal;
    private MessageConsumer consumer;
    private QueueBrowser browser;
    private Enumeration<?> browsed;
    /** Null where it is not ours to say how many are fetched ahead. */
    private Prefetch prefetch;

    static final class Delivery {
        final long key;
        final String messageId;
        Message message;
        boolean settled;

        Delivery(long key, Message message) {
            this.key = key;
            this.message = message;
            String id = null;
            try {
                id = message.getJMSMessageID();
            } catch (JMSException | RuntimeException error) {
                // Who reads the message meets this again, and tells.
            }
            messageId = id;
        }
    }

    Receiver(int id, Session session, boolean ownSession, Destination destination, boolean topic) {
        this.id = id;
        this.session = session;
        this.ownSession = ownSession;
        this.destination = destination;
        this.topic = topic;
    }

    /** @param vendor whose consumer it is */
    void open(String selector, String durable, boolean noLocal, boolean browse, Vendor vendor) throws JMSException {
        if (!browse) {
            prefetch = vendor.prefetch(topic, durable != null);
        }
        open(selector, durable, noLocal, browse);
    }

    private void open(String selector, String durable, boolean noLocal, boolean browse) throws JMSException {
        this.selector = selector;
        this.noLocal = noLocal;
        if (browse) {
            browser = session.createBrowser((Queue) destination, selector);
        } else if (durable != null) {
            consumer = session.createDurableSubscriber((Topic) destination, durable, selector, noLocal);
        } else if (topic) {
            consumer = session.createConsumer(destination, selector, noLocal);
        } else {
            consumer = session.createConsumer(destination, selector);
        }
        if (prefetch != null) {
            prefetch.opened(consumer);
        }
    }

    /**
     * This is a consumer of that session from now on. One of a queue is opened when something is wanted of it: until then it would only fetch messages
     * ahead, and ActiveMQ may change their order where it is closed before it has them all.
     */
    void reopen(Session other) throws JMSException {
        session = other;
        consumer = null;
        if (topic) {
            open(selector, durable, noLocal, false);
        }
    }

    /** More credit. @param octets 0 when nobody counts them */
    void grant(long messages, long octets) {
        credit += messages;
        if (octets != 0) {
            this.octets = octets + (this.octets == Long.MAX_VALUE ? 0 : this.octets);
        }
    }

    /** A message of this size was delivered. */
    void measured(int octets) throws JMSException {
        if (prefetch != null) {
            prefetch.measured(octets);
        }
    }

    boolean browses() {
        return browser != null;
    }

    /** @param window whether no more is wanted before all is settled */
    boolean ready(boolean window) {
        return running && !leaving && credit > 0 && octets > 0 && (!window || outstanding.isEmpty());
    }

    /** The next message, or null. @param wait milliseconds; 0 does not wait */
    Message next(long wait) throws JMSException {
        if (browser != null) {
            if (browsed == null) {
                browsed = browser.getEnumeration();
            }
            return browsed.hasMoreElements() ? (Message) browsed.nextElement() : null;
        }
        if (consumer == null) {
            open(selector, durable, noLocal, false);
        }
        return wait == 0 ? consumer.receiveNoWait() : consumer.receive(wait);
    }

    /** Whether a browser has shown everything. */
    boolean atEnd() {
        return browsed != null && !browsed.hasMoreElements();
    }

    /** @return a new delivery, or null: it is one that was expected to come again */
    Delivery take(Message message) throws JMSException {
        if (!expected.isEmpty()) {
            String id = message.getJMSMessageID();
            for (Iterator<Delivery> all = expected.iterator(); all.hasNext();) {
                Delivery again = all.next();
                if (again.messageId != null && again.messageId.equals(id)) {
                    all.remove();
                    again.message = message;
                    outstanding.put(again.key, again);
                    return null;
                }
            }
        }
        Delivery delivery = new Delivery(nextKey++, message);
        if (browser == null) {
            outstanding.put(delivery.key, delivery);
        }
        return delivery;
    }

    /** Those of a transaction that are to be committed. */
    void settle(long key) {
        Delivery delivery = outstanding.get(key);
        if (delivery != null) {
            delivery.settled = true;
            return;
        }
        for (Delivery one : expected) {
            if (one.key == key) {
                one.settled = true;
            }
        }
    }

    /** Whether a commit now would settle more than it should. */
    boolean holdsUnsettled() {
        for (Delivery one : outstanding.values()) {
            if (!one.settled) {
                return true;
            }
        }
        return false;
    }

    /** The session has rolled back, so that the settled ones alone can be received again. */
    void expectAll() {
        ArrayDeque<Delivery> later = new ArrayDeque<>(expected);
        expected.clear();
        for (Delivery one : outstanding.values()) {
            redone.merge(one.messageId, 1, Integer::sum);
        }
        expected.addAll(outstanding.values());
        expected.addAll(later);
        outstanding.clear();
    }

    /** Receive again what is settled and was rolled back. */
    void fetchSettled() throws JMSException, Failure {
        while (anySettled()) {
            Message message = consumer == null ? null : consumer.receive(PATIENCE);
            Delivery head = expected.peek();
            if (message == null || !head.settled || !message.getJMSMessageID().equals(head.messageId)) {
                throw new Failure(Failure.ROLLED_BACK, "acknowledged messages did not come again, in order, when the provider gave back others "
                        + "that were not acknowledged; the transaction is rolled back", null);
            }
            take(message);
        }
    }

    private boolean anySettled() {
        for (Delivery one : expected) {
            if (one.settled) {
                return true;
            }
        }
        return false;
    }

    void committed() {
        for (Iterator<Delivery> all = outstanding.values().iterator(); all.hasNext();) {
            Delivery one = all.next();
            if (one.settled) {
                redone.remove(one.messageId);
                all.remove();
            }
        }
    }

    /** How often a message is being delivered now to the user, who knows nothing of what was done again. */
    int attempts(Delivery delivery) throws JMSException {
        return attempts(delivery, delivery.message);
    }

    /** @param message as which its message is read */
    int attempts(Delivery delivery, Message message) throws JMSException {
        int counted = MessageReader.attempts(message);
        Integer again = redone.get(delivery.messageId);
        return again == null ? counted : Math.max(2, counted - again);
    }

    /** What was rolled back so that others could be committed is received once more, so that the provider knows it as delivered. */
    void receiveExpected() throws JMSException {
        for (int left = expected.size(); left > 0 && consumer != null; left--) {
            if (consumer.receive(PATIENCE) == null) {
                return;
            }
        }
    }

    void forget() {
        outstanding.clear();
        expected.clear();
    }

    /** Nobody wants it any more. */
    void retire() throws JMSException {
        uncount();
        closeConsumer();
    }

    /** Whatever becomes of it, it takes no more of the heap. Idempotent. */
    void uncount() {
        if (prefetch != null) {
            prefetch.closed();
        }
    }

    /** Close it, be it only until it is opened again. */
    void closeConsumer() throws JMSException {
        MessageConsumer closing = consumer;
        consumer = null;
        if (closing != null) {
            closing.close();
        }
        if (browser != null) {
            browser.close();
        }
        browser = null;
    }
}
