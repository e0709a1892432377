package stompgateway.jms.javax;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Session;
import stompgateway.jms.Failure;
import stompgateway.jms.Octets;
import stompgateway.jms.Values;
import stompgateway.jms.Work;

/**
 * What is the same of every session of the seam: the order of a turn, and its consumers with their credit. When anything takes effect is for the
 * others to say.
 */
abstract class SessionWork implements Work {
    final JmsLink link;
    final Map<Integer, Receiver> receivers = new LinkedHashMap<>();
    Octets out;
    /** What has gone wrong since the last time that somebody asked, or in the branch, and at which message sent since then. */
    Failure failure;
    int failedAt;
    int sent;
    boolean closed;
    private final Reception reception;

    SessionWork(JmsLink link, int mode) {
        this.link = link;
        reception = new Reception(mode, new MessageReader(link.destinations, link.notes));
    }

    /** Do what is asked by a question that is not the same for all sessions. */
    abstract void question(int code, ByteBuffer asked);

    /** All that was asked is done. @return whether to receive now */
    abstract boolean questioned();

    /** Let go of a consumer that has failed, and is none of ours any more. */
    abstract void failed(Receiver one, Throwable error);

    @Override
    public void over() {
        receivers.values().forEach(Receiver::uncount);
    }

    @Override
    public final boolean listens() {
        return !receivers.isEmpty();
    }

    @Override
    public final Octets turn(ByteBuffer asked, AtomicBoolean wake) {
        out = new Octets();
        boolean questions = asked.hasRemaining();
        while (asked.hasRemaining() && !closed) {
            question(asked);
        }
        if (questioned()) {
            for (Map.Entry<Receiver, Throwable> one : reception.receive(receivers.values(), out, wake, questions).entrySet()) {
                receivers.remove(one.getKey().id);
                failed(one.getKey(), one.getValue());
            }
        }
        for (String note : link.notes.take()) {
            out.u8(7).text(note);
        }
        return out;
    }

    private void question(ByteBuffer asked) {
        int code = asked.get();
        switch (code) {
            case 3:
                Receiver granted = receivers.get(asked.getInt());
                long messages = asked.getLong();
                long octets = asked.getLong();
                if (granted != null) {
                    granted.grant(messages, octets);
                }
                break;
            case 4:
                Receiver switched = receivers.get(asked.getInt());
                boolean running = asked.get() != 0;
                if (switched != null) {
                    switched.running = running;
                }
                break;
            default:
                question(code, asked);
        }
    }

    /** A consumer as somebody wants it. */
    static final class Wanted {
        final int id;
        final boolean topic;
        final boolean temporary;
        final boolean noLocal;
        final boolean browse;
        final String name;
        final String selector;
        final String durable;

        Wanted(ByteBuffer asked) {
            id = asked.getInt();
            topic = asked.get() == 1;
            temporary = asked.get() == 1;
            int flags = asked.get();
            noLocal = (flags & 1) != 0;
            browse = (flags & 2) != 0;
            name = Values.text(asked);
            selector = Values.text(asked);
            durable = Values.text(asked);
        }
    }

    /** Open a consumer. @param own whether the session is the consumer's alone */
    final void open(Wanted wanted, Session session, boolean own) throws JMSException, Failure {
        Destination destination = link.destinations.find(session, wanted.topic, wanted.temporary, wanted.name);
        Receiver receiver = new Receiver(wanted.id, session, own, destination, wanted.topic);
        if (!wanted.durable.isEmpty()) {
            link.subscribing(wanted.durable);
            receiver.durable = wanted.durable;
        }
        try {
            receiver.open(wanted.selector.isEmpty() ? null : wanted.selector, receiver.durable, wanted.noLocal, wanted.browse, link.vendor);
        } catch (JMSException | RuntimeException error) {
            link.subscribed(wanted.durable);
            throw error;
        }
        receivers.put(wanted.id, receiver);
    }

    /** A consumer could not be opened: who asks next whether all before is done is told, too. */
    final void refused(int id, Throwable error) {
        ended(11, id, error);
    }

    final void ended(int id, Throwable error) {
        ended(5, id, error);
    }

    private void ended(int code, int id, Throwable error) {
        Failure told = Failures.of(error);
        out.u8(code).u32(id).u32(told.kind()).text(told.getMessage());
    }

    /** Answer what is wrong, if anything. */
    final void tell(int tag) {
        out.u8(3).u32(tag).u32(failure == null ? -1 : failure.kind()).u32(failedAt).text(failure == null ? "" : failure.getMessage());
    }
}
