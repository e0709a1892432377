package stompgateway.jms.javax;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.MessageProducer;
import javax.jms.Session;
import stompgateway.jms.Failure;
import stompgateway.jms.Notes;
import stompgateway.jms.Octets;
import stompgateway.jms.Values;

/**
 * Sends in a transacted session, in the user's transactions or, for users who have none, in one for what was asked at one time: the provider
 * makes a transaction durable with one answer, where it would answer each message.
 */
final class Sender {
    private static final int MOST_PRODUCERS = 32;

    private final Session session;
    private final MessageWriter writer;
    private final Map<Destination, MessageProducer> producers = new LinkedHashMap<>(16, 0.75f, true);
    /** Head and body in turn, of those sent and not committed. */
    private final List<byte[]> open = new ArrayList<>();
    /** Null where sends fail by themselves, or the transaction's end tells of it. */
    private final Confirmations confirmations;
    private final Map<MessageProducer, Object> ids = new HashMap<>();
    private Octets identities = new Octets();

    Sender(Session session, Destinations destinations, Notes notes) {
        this(session, destinations, notes, null);
    }

    Sender(Session session, Destinations destinations, Notes notes, Confirmations confirmations) {
        this.session = session;
        this.confirmations = confirmations;
        writer = new MessageWriter(destinations, notes);
    }

    int count() {
        return open.size() / 2;
    }

    void send(ByteBuffer asked) throws JMSException, Failure {
        int headLength = asked.getInt();
        int bodyLength = asked.getInt();
        byte[] head = Values.some(asked, headLength);
        byte[] body = Values.some(asked, bodyLength);
        send(head, body);
        open.add(head);
        open.add(body);
    }

    private void send(byte[] head, byte[] body) throws JMSException, Failure {
        MessageWriter.Outgoing one = writer.read(session, head, body);
        long timeToLive = one.expires == 0 ? 0 : Math.max(1, one.expires - System.currentTimeMillis());
        MessageProducer producer = producer(one.destination);
        if (confirmations != null) {
            confirmations.sends(ids.get(producer));
        }
        long delay = one.due == 0 ? 0 : one.due - System.currentTimeMillis();
        if (delay > 0) {
            sendLater(producer, one, timeToLive, delay);
        } else {
            producer.send(one.message, one.deliveryMode, one.priority, timeToLive);
        }
        byte[] id = Octets.utf8(one.message.getJMSMessageID() == null ? "" : one.message.getJMSMessageID());
        identities.u16(id.length).raw(id).i64(one.message.getJMSTimestamp());
    }

    private static void sendLater(MessageProducer producer, MessageWriter.Outgoing one, long timeToLive, long delay) throws JMSException, Failure {
        try {
            producer.setDeliveryDelay(delay);
        } catch (LinkageError | UnsupportedOperationException error) {
            throw new Failure(Failure.MESSAGE, "the provider does not deliver messages at a later time", error);
        }
        try {
            producer.send(one.message, one.deliveryMode, one.priority, timeToLive);
        } finally {
            producer.setDeliveryDelay(0);
        }
    }

    private MessageProducer producer(Destination destination) throws JMSException {
        MessageProducer producer = producers.get(destination);
        if (producer == null) {
            if (producers.size() >= MOST_PRODUCERS) {
                MessageProducer oldest = producers.remove(producers.keySet().iterator().next());
                if (confirmations != null && confirmations.await(ids.values()) > 0) {
                    throw confirmations.failure();
                }
                oldest.close();
                Object id = ids.remove(oldest);
                if (id != null) {
                    confirmations.closed(Collections.singleton(id));
                }
            }
            producer = session.createProducer(destination);
            if (confirmations != null) {
                ids.put(producer, confirmations.opened(producer));
            }
            producers.put(destination, producer);
        }
        return producer;
    }

    /** Send again what was rolled back. */
    void replay() throws JMSException, Failure {
        identities = new Octets();
        for (int at = 0; at < open.size(); at += 2) {
            send(open.get(at), open.get(at + 1));
        }
    }

    /** Wait until what was sent is confirmed, where sends do not wait for that. @return how many messages are not: the last ones */
    int unconfirmed() {
        return confirmations == null ? 0 : confirmations.await(ids.values());
    }

    /** Why not. */
    JMSException refusal() {
        return confirmations.failure();
    }

    /** Its session is about to be closed. */
    void close() {
        if (confirmations != null) {
            confirmations.closed(ids.values());
            ids.clear();
        }
    }

    /** The transaction is committed. @return for each message its id and timestamp */
    byte[] committed() {
        byte[] octets = identities.take();
        forget();
        return octets;
    }

    /** The transaction is rolled back. */
    void forget() {
        identities = new Octets();
        open.clear();
    }

    Session session() {
        return session;
    }
}
