package stompgateway.jms.javax;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.Session;
import javax.jms.Topic;
import stompgateway.jms.Failure;
import stompgateway.jms.Heap;
import stompgateway.jms.Octets;
import stompgateway.jms.Transformers;
import stompgateway.jms.Transforming;
import stompgateway.jms.Values;
import stompgateway.jms.Work;

/** A session with a message transformer, which changes the messages of a link. The layout of what is asked is that of transforming.py. */
final class TransformerWork implements Work {
    private static final int MAKE = 1;
    private static final int TRANSFORM = 2;
    private static final int MADE = 1;
    private static final int TRANSFORMED = 2;
    private static final int NOTE = 3;
    /** What became of a message. */
    private static final int SAME = 0;
    private static final int CHANGED = 1;
    private static final int ANOTHER = 2;
    private static final int FAILED = 3;
    /** Where it goes. */
    private static final int NOWHERE_ELSE = 0;
    private static final int BY_NAME = 1;
    private static final int QUEUE = 2;
    private static final int TOPIC = 3;

    private static final String NAMESPACE = Message.class.getName().split("\\.")[0];

    private final JmsLink link;
    private final Session session;
    private final MessageWriter writer;
    private final MessageReader reader;
    private String key;
    private Transforming<Object, Object> transformer;

    TransformerWork(JmsLink link, Session session) {
        this.link = link;
        this.session = session;
        writer = new MessageWriter(link.destinations, link.notes);
        reader = new MessageReader(link.destinations, link.notes);
    }

    @Override
    public boolean listens() {
        return false;
    }

    @Override
    public void over() {
        if (transformer != null) {
            Transformers.giveBack(key, transformer);
        }
        try {
            session.close();
        } catch (JMSException | RuntimeException error) {
            // It had nothing: its connection may be gone.
            link.notes.once("transformer", "closing the session of a message transformer failed: " + Failure.told(error));
        }
    }

    @Override
    public Octets turn(ByteBuffer asked, AtomicBoolean wake) throws Failure {
        Octets out = new Octets();
        while (asked.hasRemaining()) {
            int code = asked.get();
            switch (code) {
                case MAKE:
                    make(asked, out);
                    break;
                case TRANSFORM:
                    transform(asked, out);
                    break;
                default:
                    throw new IllegalArgumentException("question " + code + " is unknown");
            }
        }
        for (String note : link.notes.take()) {
            out.u8(NOTE).text(note);
        }
        return out;
    }

    @SuppressWarnings("unchecked")
    private void make(ByteBuffer asked, Octets out) {
        key = Values.text(asked);
        String name = Values.text(asked);
        String home = Values.text(asked);
        List<String> jars = new ArrayList<>();
        for (int left = asked.getInt(); left > 0; left--) {
            jars.add(Values.text(asked));
        }
        out.u8(MADE);
        try {
            transformer = (Transforming<Object, Object>) Transformers.take(key, NAMESPACE, name, home, jars);
            out.u32(-1).text("");
        } catch (Failure failure) {
            out.u32(failure.kind()).text(Failure.brief(failure.getMessage()));
        }
    }

    private void transform(ByteBuffer asked, Octets out) throws Failure {
        String source = Values.text(asked);
        String target = Values.text(asked);
        String[] pairs = new String[2 * asked.getInt()];
        for (int at = 0; at < pairs.length; at++) {
            pairs[at] = Values.text(asked);
        }
        int count = asked.getInt();
        out.u8(TRANSFORMED).u32(count);
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        thread.setContextClassLoader(transformer.getClass().getClassLoader());
        try {
            for (int left = count; left > 0; left--) {
                int headLength = asked.getInt();
                int bodyLength = asked.getInt();
                byte[] head = Values.some(asked, headLength);
                byte[] body = Values.some(asked, bodyLength);
                Properties properties = new Properties();
                for (int at = 0; at < pairs.length; at += 2) {
                    properties.setProperty(pairs[at], pairs[at + 1]);
                }
                int start = out.size();
                String failure = transform(head, body, source, target, properties, out);
                if (failure != null) {
                    out.truncate(start);
                    out.u8(FAILED).text(Failure.brief(failure));
                }
            }
        } finally {
            thread.setContextClassLoader(before);
        }
    }

    /** @return why it failed, or null */
    private String transform(byte[] head, byte[] body, String source, String target, Properties properties, Octets out) {
        MessageWriter.Outgoing given;
        Message view;
        try {
            given = writer.read(session, head, body, true);
            addHeaders(given);
            view = ReadOnly.view(given.message);
        } catch (JMSException | Failure | RuntimeException | LinkageError error) {
            return "the message could not be made for it: " + Failures.of(error).getMessage();
        }
        Object result;
        Object elsewhere;
        boolean dropped;
        try {
            transformer.init(session, "JMS");
            result = transformer.transform(view, true, null, source, target, properties);
            elsewhere = transformer.getBranchTo();
            dropped = transformer.isNoTransfer();
        } catch (Throwable error) {
            // The class is the operator's own, and may throw anything.
            Heap.check(error);
            return "it threw " + Failures.of(error).getMessage();
        } finally {
            transformer.init(null, null);
        }
        if (!(result instanceof Message)) {
            return "it returned " + (result == null ? "null" : "a " + result.getClass().getName()) + ", not a message";
        }
        try {
            write(out, given, (Message) result, elsewhere, dropped);
            return null;
        } catch (JMSException | Failure | RuntimeException | LinkageError error) {
            return "what it returned cannot be read: " + Failures.of(error).getMessage();
        }
    }

    private void write(Octets out, MessageWriter.Outgoing given, Message result, Object elsewhere, boolean dropped) throws JMSException, Failure {
        ReadOnly view = ReadOnly.behind(result);
        Message message = view == null ? result : view.message;
        boolean original = message == given.message;
        boolean same = original && !(view != null && view.changed());
        out.u8(same ? SAME : original ? CHANGED : ANOTHER).u8(dropped ? 1 : 0);
        if (elsewhere == null) {
            out.u8(NOWHERE_ELSE);
        } else if (elsewhere instanceof String) {
            out.u8(BY_NAME).text((String) elsewhere);
        } else {
            Destinations.Named named = link.destinations.named((Destination) elsewhere, false);
            out.u8(named.topic ? TOPIC : QUEUE).text(named.name);
        }
        if (!same) {
            ReadOnly.rewind(message);
            reader.write(out, session, message, given.destination, given.destination instanceof Topic);
        }
    }

    /** The headers that a provider sets, as far as this one lets others set them: nothing depends on what a transformer sees of these. */
    private void addHeaders(MessageWriter.Outgoing given) {
        try {
            given.message.setJMSDestination(given.destination);
            given.message.setJMSDeliveryMode(given.deliveryMode);
            given.message.setJMSPriority(given.priority);
            given.message.setJMSExpiration(given.expires);
            given.message.setJMSTimestamp(given.timestamp);
            given.message.setJMSMessageID(given.id);
        } catch (JMSException | RuntimeException error) {
            link.notes.once("headers", "the provider does not let a message have the headers with which it came: " + Failure.told(error));
        }
    }
}
