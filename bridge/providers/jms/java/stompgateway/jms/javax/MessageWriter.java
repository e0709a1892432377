package stompgateway.jms.javax;

import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.Set;
import javax.jms.BytesMessage;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.Session;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;
import stompgateway.jms.Failure;
import stompgateway.jms.Names;
import stompgateway.jms.Notes;
import stompgateway.jms.Octets;
import stompgateway.jms.Values;

/** The head and the body of gateway/messaging/envelope.py as messages of the JMS API. */
final class MessageWriter {
    /** How many refused names are remembered: senders make them up. */
    private static final int MOST_REFUSED = 1000;
    /** A field of the head that session.py adds to those of gateway/messaging/envelope.py: when the message is to be delivered. */
    private static final int DUE = 255;

    private final Destinations destinations;
    private final Notes notes;
    /** Names that the provider has refused for a property, so that it need not be asked for each message. */
    private final Set<String> refused = new HashSet<>();

    MessageWriter(Destinations destinations, Notes notes) {
        this.destinations = destinations;
        this.notes = notes;
    }

    /** A message to be sent, and how. */
    static final class Outgoing {
        Message message;
        Destination destination;
        int deliveryMode;
        int priority;
        long expires;
        /** When it is to be delivered, epoch milliseconds; 0: at once. */
        long due;
        long timestamp;
        String id;
    }

    Outgoing read(Session session, byte[] head, byte[] body) throws JMSException, Failure {
        return read(session, head, body, false);
    }

    /** @param whole whether its id is of interest, too */
    Outgoing read(Session session, byte[] head, byte[] body, boolean whole) throws JMSException, Failure {
        ByteBuffer in = ByteBuffer.wrap(head);
        if (in.get() != 1) {
            throw new Failure(Failure.MESSAGE, "the head of a message has a version other than 1", null);
        }
        Outgoing out = new Outgoing();
        out.timestamp = in.getLong();
        out.expires = in.getLong();
        int idLength = in.getShort() & 0xFFFF;
        int userLength = in.getShort() & 0xFFFF;
        int user = in.position() + idLength;
        if (whole) {
            out.id = text(in, user);
        }
        in.position(user + userLength);
        out.message = create(session, in.get(), body);
        out.deliveryMode = in.get();
        out.priority = in.get();
        while (in.hasRemaining()) {
            int tag = in.get() & 0xFF;
            int end = in.getInt() + in.position();
            switch (tag) {
                case 1:
                    out.destination = destination(session, in, end);
                    break;
                case 2:
                    out.message.setJMSReplyTo(destination(session, in, end));
                    break;
                case 3:
                    out.message.setJMSCorrelationID(text(in, end));
                    break;
                case 4:
                    out.message.setJMSType(text(in, end));
                    break;
                case 5:
                    readProperties(out.message, in);
                    break;
                case 6:
                    readExtras(out.message, in);
                    break;
                case 128:
                    if (out.message instanceof TextMessage) {
                        ((TextMessage) out.message).setText(null);
                    }
                    break;
                case DUE:
                    out.due = in.getLong();
                    break;
                default:
                    break;
            }
            in.position(end);
        }
        return out;
    }

    private static String text(ByteBuffer in, int end) {
        return Octets.text(Values.some(in, end - in.position()));
    }

    private Destination destination(Session session, ByteBuffer in, int end) throws JMSException, Failure {
        boolean topic = in.get() == 1;
        boolean temporary = in.get() == 1;
        return destinations.find(session, topic, temporary, text(in, end));
    }

    private static Message create(Session session, int type, byte[] body) throws JMSException, Failure {
        switch (type) {
            case 0:
                return session.createMessage();
            case 1:
                TextMessage text = session.createTextMessage();
                text.setText(Octets.text(body));
                return text;
            case 2:
                BytesMessage bytes = session.createBytesMessage();
                bytes.writeBytes(body);
                return bytes;
            case 3:
                MapMessage map = session.createMapMessage();
                ByteBuffer entries = ByteBuffer.wrap(body);
                for (int left = entries.getInt(); left > 0; left--) {
                    String name = Values.text(entries);
                    map.setObject(name, Values.read(entries));
                }
                return map;
            case 4:
                StreamMessage stream = session.createStreamMessage();
                ByteBuffer items = ByteBuffer.wrap(body);
                for (int left = items.getInt(); left > 0; left--) {
                    stream.writeObject(Values.read(items));
                }
                return stream;
            case 5:
                return ObjectBodies.write(session, body);
            default:
                throw new Failure(Failure.MESSAGE, type + " is no type of body", null);
        }
    }

    private static void readProperties(Message message, ByteBuffer in) throws JMSException {
        for (int left = in.getInt(); left > 0; left--) {
            String name = Values.text(in);
            Object value = Values.read(in);
            // JMS 1.1, section 3.5.9: of these a client sets the group's and none else.
            boolean standard = name.startsWith("JMSX");
            if (standard && !name.startsWith("JMSXGroup")) {
                continue;
            }
            try {
                message.setObjectProperty(name, value);
            } catch (JMSException | RuntimeException error) {
                if (!standard) {
                    throw error;
                }
            }
        }
    }

    /** Headers whose names JMS does not allow: as they are where the provider takes them, else escaped. */
    private void readExtras(Message message, ByteBuffer in) throws JMSException {
        for (int left = in.getInt(); left > 0; left--) {
            String name = Values.text(in);
            String value = Values.text(in);
            if (!refused.contains(name)) {
                try {
                    if (!message.propertyExists(name)) {
                        message.setStringProperty(name, value);
                    }
                    continue;
                } catch (JMSException | RuntimeException error) {
                    if (refused.size() == MOST_REFUSED) {
                        refused.clear();
                    }
                    refused.add(name);
                    notes.once("names", "the provider refuses names of headers such as '" + name
                            + "' for properties; they travel escaped, this one as '" + Names.escape(name) + "'");
                }
            }
            String escaped = Names.escape(name);
            // STOMP 1.2: of a header that comes again the first counts.
            if (!message.propertyExists(escaped)) {
                message.setStringProperty(escaped, value);
            }
        }
    }
}
