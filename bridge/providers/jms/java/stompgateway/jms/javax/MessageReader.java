package stompgateway.jms.javax;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageEOFException;
import javax.jms.ObjectMessage;
import javax.jms.Session;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;
import stompgateway.jms.Failure;
import stompgateway.jms.Names;
import stompgateway.jms.Notes;
import stompgateway.jms.Octets;
import stompgateway.jms.Values;

/** Messages of the JMS API as octets: the head and the body of gateway/messaging/envelope.py. */
final class MessageReader {
    /** Properties that the provider sets for each delivery. */
    private static final Set<String> OF_DELIVERY = new HashSet<>(Arrays.asList(
            "JMSXDeliveryCount", "JMSXRcvTimestamp", "JMSXState", "JMSXConsumerTXID", "JMSXProducerTXID", "JMSXUserID"));

    private final Destinations destinations;
    private final Notes notes;

    MessageReader(Destinations destinations, Notes notes) {
        this.destinations = destinations;
        this.notes = notes;
    }

    /** How often the message is being delivered now, from 1. */
    static int attempts(Message message) throws JMSException {
        if (!message.getJMSRedelivered()) {
            return 1;
        }
        // Who counts from 0, or does not count, still says that it is a redelivery.
        return message.propertyExists("JMSXDeliveryCount") ? Math.max(2, message.getIntProperty("JMSXDeliveryCount")) : 2;
    }

    /**
     * Write lengths of head and body, then both.
     *
     * @param from what the consumer receives from
     * @return octets of the body
     */
    int write(Octets out, Session session, Message message, Destination from, boolean topic) throws JMSException, Failure {
        out.u32(0).u32(0);
        int start = out.size();
        writeHead(out, message, from, topic);
        // Read once: some clients decode it each time.
        String text = message instanceof TextMessage ? ((TextMessage) message).getText() : null;
        if (message instanceof TextMessage && text == null) {
            out.u8(128).u32(0);
        }
        int middle = out.size();
        if (text != null) {
            out.raw(Octets.utf8(text));
        } else {
            writeBody(out, session, message);
        }
        out.put32(start - 8, middle - start);
        out.put32(start - 4, out.size() - middle);
        return out.size() - middle;
    }

    /** The same of a message that cannot be read whole: what is known of its head, and its body as far as the client shows octets. */
    int writeKnown(Octets out, Lenient known, Destination from, boolean topic) throws JMSException {
        out.u32(0).u32(0);
        int start = out.size();
        writeHead(out, known.view(), from, topic);
        byte[] body = known.octets();
        out.put32(start - 8, out.size() - start);
        out.put32(start - 4, body.length);
        out.raw(body);
        return body.length;
    }

    /** The same of a message of which nothing is known but its id. @param id null where it has none, or where that is not known either */
    void writeNothing(Octets out, String id, Destination from, boolean topic) throws JMSException {
        out.u32(0).u32(0);
        int start = out.size();
        byte[] octets = Octets.utf8(text(id));
        out.u8(1).i64(0).i64(0).u16(octets.length).u16(0).raw(octets).u8(0).u8(2).u8(4);
        writeDestination(out, 1, from, topic);
        out.put32(start - 8, out.size() - start);
    }

    private void writeHead(Octets out, Message message, Destination from, boolean topic) throws JMSException {
        byte[] id = Octets.utf8(text(message.getJMSMessageID()));
        byte[] user = new byte[0];
        if (message.propertyExists("JMSXUserID")) {
            Object known = message.getObjectProperty("JMSXUserID");
            user = Octets.utf8(known == null ? "" : known.toString());
        }
        out.u8(1).i64(Math.max(0, message.getJMSTimestamp())).i64(Math.max(0, message.getJMSExpiration()));
        out.u16(id.length).u16(user.length).raw(id).raw(user);
        out.u8(type(message));
        out.u8(message.getJMSDeliveryMode() == DeliveryMode.NON_PERSISTENT ? 1 : 2);
        out.u8(Math.max(0, Math.min(9, message.getJMSPriority())));
        Destination destination = message.getJMSDestination();
        writeDestination(out, 1, destination == null ? from : destination, topic);
        if (message.getJMSReplyTo() != null) {
            writeDestination(out, 2, message.getJMSReplyTo(), false);
        }
        if (message.getJMSCorrelationID() != null) {
            out.u8(3).sized(Octets.utf8(message.getJMSCorrelationID()));
        }
        if (message.getJMSType() != null) {
            out.u8(4).sized(Octets.utf8(message.getJMSType()));
        }
        writeProperties(out, message);
    }

    private void writeDestination(Octets out, int tag, Destination destination, boolean topic) throws JMSException {
        Destinations.Named named = destinations.named(destination, topic);
        out.u8(tag);
        int opened = out.open();
        out.u8(named.topic ? 1 : 0).u8(named.temporary ? 1 : 0).raw(Octets.utf8(named.name));
        out.close(opened);
    }

    private void writeProperties(Octets out, Message message) throws JMSException {
        Enumeration<?> names = message.getPropertyNames();
        int start = out.size();
        out.u8(5);
        int opened = out.open();
        int count = 0;
        out.u32(0);
        List<String> extras = null;
        while (names.hasMoreElements()) {
            String name = names.nextElement().toString();
            if (OF_DELIVERY.contains(name)) {
                continue;
            }
            Object value = Undamaged.property(message, name, message.getObjectProperty(name));
            String plain = Names.isProperty(name) ? Names.unescape(name) : name;
            if (plain == null) {
                out.text(name);
                writeValue(out, value, "property", name);
                count++;
            } else {
                if (extras == null) {
                    extras = new ArrayList<>();
                }
                extras.add(plain);
                extras.add(String.valueOf(value));
            }
        }
        if (count == 0) {
            out.truncate(start);
        } else {
            out.put32(opened, count);
            out.close(opened);
        }
        if (extras != null) {
            out.u8(6);
            opened = out.open();
            out.u32(extras.size() / 2);
            for (String text : extras) {
                out.text(text);
            }
            out.close(opened);
        }
    }

    private void writeValue(Octets out, Object value, String what, String name) {
        if (!Values.write(out, value)) {
            String type = value.getClass().getName();
            notes.once(type, what + " '" + name + "' is a " + type + ", which JMS does not have; it goes on as its text");
        }
    }

    private static int type(Message message) {
        if (message instanceof TextMessage) {
            return 1;
        }
        if (message instanceof BytesMessage) {
            return 2;
        }
        if (message instanceof MapMessage) {
            return 3;
        }
        if (message instanceof StreamMessage) {
            return 4;
        }
        return message instanceof ObjectMessage ? 5 : 0;
    }

    /** The body of what is no TextMessage; of one whose text is null there is none. */
    private void writeBody(Octets out, Session session, Message message) throws JMSException, Failure {
        if (message instanceof BytesMessage) {
            BytesMessage bytes = (BytesMessage) message;
            long length = bytes.getBodyLength();
            if (length > Integer.MAX_VALUE / 2) {
                throw new Failure(Failure.MESSAGE, "a body of " + length + " octets is too large", null);
            }
            byte[] body = new byte[(int) length];
            if (length > 0) {
                bytes.readBytes(body);
            }
            out.raw(body);
        } else if (message instanceof MapMessage) {
            MapMessage map = (MapMessage) message;
            int at = out.size();
            int count = 0;
            out.u32(0);
            for (Enumeration<?> names = map.getMapNames(); names.hasMoreElements(); count++) {
                String name = names.nextElement().toString();
                out.text(name);
                writeValue(out, Undamaged.entry(map, name, map.getObject(name)), "map entry", name);
            }
            out.put32(at, count);
        } else if (message instanceof StreamMessage) {
            writeStream(out, (StreamMessage) message);
        } else if (message instanceof ObjectMessage) {
            out.raw(ObjectBodies.read(session, (ObjectMessage) message));
        }
    }

    private void writeStream(Octets out, StreamMessage stream) throws JMSException {
        int at = out.size();
        int count = 0;
        out.u32(0);
        while (true) {
            Object item;
            try {
                item = stream.readObject();
            } catch (MessageEOFException end) {
                break;
            }
            writeValue(out, item, "stream item", Integer.toString(count));
            count++;
        }
        out.put32(at, count);
    }

    private static String text(String text) {
        return text == null ? "" : text;
    }
}
