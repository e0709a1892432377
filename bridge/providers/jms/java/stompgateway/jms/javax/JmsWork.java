package stompgateway.jms.javax;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.Session;
import stompgateway.jms.Failure;
import stompgateway.jms.Link;
import stompgateway.jms.Octets;
import stompgateway.jms.Values;
import stompgateway.jms.Work;

/**
 * A session of the seam: one session of JMS where it is transacted; else one to send, and one for each consumer, so that what one of them has is
 * settled or given back without the others'.
 */
final class JmsWork implements Work {
    private final JmsLink link;
    private final int mode;
    private final int individual;
    private final Reception reception;
    private final Map<Integer, Receiver> receivers = new LinkedHashMap<>();
    private Session shared;
    private Sender sender;
    private Octets out;
    /** What has gone wrong since the last time that somebody asked, and at which message sent since then. */
    private Failure failure;
    private int failedAt;
    private int sent;
    private boolean closed;
    /** An acknowledgement that is still to be made, so that a question behind it can make it one that is answered. */
    private Vendor.Acknowledgement held;
    private boolean unconfirmed;

    JmsWork(JmsLink link, int mode, int individual) {
        this.link = link;
        this.mode = mode;
        this.individual = individual;
        reception = new Reception(mode, new MessageReader(link.destinations, link.notes));
    }

    @Override
    public byte[] turn(ByteBuffer asked, ByteBuffer wake) {
        Thread.currentThread().setContextClassLoader(link.loader);
        out = new Octets();
        boolean questions = asked.hasRemaining();
        while (asked.hasRemaining() && !closed) {
            question(asked);
        }
        flush();
        acknowledgeHeld();
        if (!closed) {
            for (Map.Entry<Receiver, Throwable> failed : reception.receive(receivers.values(), out, wake, questions).entrySet()) {
                receivers.remove(failed.getKey().id);
                end(failed.getKey());
                ended(failed.getKey().id, failed.getValue());
            }
        }
        for (String note : link.notes.take()) {
            out.u8(7).text(note);
        }
        return out.take();
    }

    private void question(ByteBuffer asked) {
        switch (asked.get()) {
            case 1:
                send(asked);
                break;
            case 2:
                open(asked);
                break;
            case 3:
                credit(asked);
                break;
            case 4:
                Receiver switched = receivers.get(asked.getInt());
                boolean running = asked.get() != 0;
                if (switched != null) {
                    switched.running = running;
                }
                break;
            case 5:
                settle(asked);
                break;
            case 6:
                flush();
                confirm();
                Failure known = failure;
                int soFar = sent;
                answer(asked.getInt());
                if (mode == Link.TRANSACTED) {
                    // The transaction is not over, and cannot be committed any more.
                    failure = known;
                    sent = soFar;
                }
                break;
            case 7:
                commit(asked.getInt());
                break;
            case 8:
                failure = null;
                rollBack();
                answer(asked.getInt());
                break;
            case 9:
                recover();
                break;
            case 10:
                shut(asked.getInt(), asked.get() != 0);
                break;
            case 11:
                close();
                break;
            default:
                throw new IllegalArgumentException("no such question");
        }
    }

    // --- sending

    private Session newSession(boolean transacted, int acknowledgeMode) throws JMSException {
        return link.connection.createSession(transacted, acknowledgeMode);
    }

    private Session shared() throws JMSException {
        if (shared == null) {
            shared = newSession(true, Session.CLIENT_ACKNOWLEDGE);
        }
        return shared;
    }

    private void send(ByteBuffer asked) {
        int count = asked.getInt();
        int end = asked.getInt() + asked.position();
        int done = 0;
        if (failure == null) {
            try {
                if (sender == null) {
                    sender = new Sender(shared(), link.destinations, link.notes);
                }
                for (; done < count; done++) {
                    sender.send(asked);
                }
            } catch (JMSException | Failure | RuntimeException | LinkageError error) {
                fail(error, sent + done);
                if (mode != Link.TRANSACTED) {
                    rescue();
                    dropped(count - done);
                }
            }
        } else if (mode != Link.TRANSACTED) {
            dropped(count);
        }
        sent += done;
        asked.position(end);
    }

    /** One message was refused: those before it are sent all the same. */
    private void rescue() {
        try {
            sender.session().rollback();
            sender.replay();
        } catch (JMSException | Failure | RuntimeException error) {
            fail(error, -1);
            dropped(sender.count());
            sender.forget();
        }
    }

    private void dropped(int count) {
        if (count > 0) {
            out.u8(2).u32(count);
        }
    }

    /** What users without transactions have sent is committed. */
    private void flush() {
        if (mode != Link.TRANSACTED && sender != null && sender.count() > 0) {
            int count = sender.count();
            try {
                sender.session().commit();
                out.u8(1).u32(count).raw(sender.committed());
            } catch (JMSException | RuntimeException error) {
                fail(error, -1);
                dropped(count);
                sender.forget();
            }
        }
    }

    private void fail(Throwable error, int at) {
        if (failure == null || at < 0) {
            failure = Failures.of(error);
            failedAt = at;
        }
    }

    private void answer(int tag) {
        Failure told = failure;
        out.u8(3).u32(tag).u32(told == null ? -1 : told.kind()).u32(failedAt).text(told == null ? "" : told.getMessage());
        failure = null;
        sent = 0;
    }

    // --- transactions

    private void commit(int tag) {
        int count = sender == null ? 0 : sender.count();
        try {
            if (failure != null) {
                throw failure;
            }
            boolean partial = false;
            for (Receiver one : receivers.values()) {
                one.fetchSettled();
                partial |= one.holdsUnsettled();
            }
            if (partial) {
                rollBackTheRest();
            }
        } catch (JMSException | Failure | RuntimeException error) {
            fail(error, -1);
            rollBack();
            answer(tag);
            return;
        }
        if (shared != null) {
            try {
                shared.commit();
            } catch (JMSException | RuntimeException error) {
                Failure known = Failures.of(error);
                boolean unknown = known.kind() == Failure.UNAVAILABLE || known.kind() == Failure.OTHER || known.kind() == Failure.STATE;
                fail(unknown ? new Failure(Failure.OUTCOME_UNKNOWN, known.getMessage(), error) : known, -1);
                rollBack();
                answer(tag);
                return;
            }
        }
        if (count > 0) {
            out.u8(1).u32(count).raw(sender.committed());
        }
        for (Iterator<Receiver> all = receivers.values().iterator(); all.hasNext();) {
            Receiver one = all.next();
            one.committed();
            if (one.leaving && one.outstanding.isEmpty()) {
                all.remove();
                leave(one);
            }
        }
        answer(tag);
    }

    private void leave(Receiver one) {
        try {
            if (!one.expected.isEmpty()) {
                one.receiveExpected();
                shared.rollback();
            }
        } catch (JMSException | RuntimeException error) {
            fail(error, -1);
        }
        end(one);
    }

    /** JMS commits all that was received, so what is not to be committed is given back, and the rest done again. */
    private void rollBackTheRest() throws JMSException, Failure {
        if (shared == null) {
            return;
        }
        shared.rollback();
        for (Receiver one : receivers.values()) {
            one.expectAll();
            one.fetchSettled();
        }
        if (sender != null) {
            sender.replay();
        }
    }

    /** The transaction is undone, and everything outstanding goes back. */
    private void rollBack() {
        if (sender != null) {
            sender.forget();
        }
        try {
            if (shared != null) {
                shared.rollback();
            }
        } catch (JMSException | RuntimeException error) {
            fail(error, -1);
        }
        giveBack();
    }

    /** Everything outstanding goes back; the session is not transacted. */
    private void recover() {
        flush();
        acknowledgeHeld();
        try {
            for (Receiver one : receivers.values()) {
                if (!one.browses() && !one.outstanding.isEmpty()) {
                    one.session.recover();
                }
            }
        } catch (JMSException | RuntimeException error) {
            fail(error, -1);
        }
        giveBack();
    }

    private void giveBack() {
        for (Iterator<Receiver> all = receivers.values().iterator(); all.hasNext();) {
            Receiver one = all.next();
            one.forget();
            if (one.leaving) {
                all.remove();
                end(one);
            }
        }
        out.u8(6);
    }

    // --- consumers

    private void open(ByteBuffer asked) {
        int id = asked.getInt();
        boolean topic = asked.get() == 1;
        boolean temporary = asked.get() == 1;
        int flags = asked.get();
        String name = Values.text(asked);
        String selector = Values.text(asked);
        String durable = Values.text(asked);
        Session own = null;
        try {
            boolean browse = (flags & 2) != 0;
            if (mode != Link.TRANSACTED || browse) {
                own = newSession(false, mode == Link.INDIVIDUAL && !browse ? individual : Session.CLIENT_ACKNOWLEDGE);
            }
            Session session = own == null ? shared() : own;
            Destination destination = link.destinations.find(session, topic, temporary, name);
            Receiver receiver = new Receiver(id, session, own != null, destination, topic);
            if (!durable.isEmpty()) {
                link.subscribing(durable);
                receiver.durable = durable;
            }
            try {
                receiver.open(selector.isEmpty() ? null : selector, receiver.durable, (flags & 1) != 0, browse);
            } catch (JMSException | RuntimeException error) {
                link.subscribed(durable);
                throw error;
            }
            receivers.put(id, receiver);
        } catch (JMSException | Failure | RuntimeException | LinkageError error) {
            ended(id, error);
            try {
                if (own != null) {
                    own.close();
                }
            } catch (JMSException | RuntimeException second) {
                error.addSuppressed(second);
            }
        }
    }

    private void ended(int id, Throwable error) {
        Failure told = Failures.of(error);
        out.u8(5).u32(id).u32(told.kind()).text(told.getMessage());
    }

    private void credit(ByteBuffer asked) {
        Receiver one = receivers.get(asked.getInt());
        long messages = asked.getLong();
        long octets = asked.getLong();
        if (one != null) {
            one.grant(messages, octets);
        }
    }

    private void settle(ByteBuffer asked) {
        flush();
        Receiver one = receivers.get(asked.getInt());
        int count = asked.getInt();
        List<Receiver.Delivery> deliveries = new ArrayList<>(count);
        for (int left = count; left > 0; left--) {
            long key = asked.getLong();
            if (one != null && mode == Link.TRANSACTED) {
                one.settle(key);
            } else if (one != null && one.outstanding.containsKey(key)) {
                deliveries.add(one.outstanding.remove(key));
            }
        }
        if (deliveries.isEmpty()) {
            return;
        }
        try {
            Vendor.Acknowledgement all = one.outstanding.isEmpty() ? link.vendor.ofAll(one.session) : null;
            if (mode == Link.INDIVIDUAL && all == null) {
                for (int at = 0; at < deliveries.size() - 1; at++) {
                    deliveries.get(at).message.acknowledge();
                }
            }
            Message last = deliveries.get(deliveries.size() - 1).message;
            acknowledgeHeld();
            held = mode == Link.INDIVIDUAL && all != null ? all : last::acknowledge;
        } catch (JMSException | RuntimeException error) {
            fail(error, -1);
        }
        if (one.leaving && one.outstanding.isEmpty()) {
            acknowledgeHeld();
            receivers.remove(one.id);
            end(one);
        }
    }

    /** The last acknowledgement is made without waiting for an answer: nobody has asked yet whether it is durable. */
    private void acknowledgeHeld() {
        Vendor.Acknowledgement last = held;
        held = null;
        if (last != null) {
            try {
                last.run();
                unconfirmed = true;
            } catch (JMSException | RuntimeException error) {
                fail(error, -1);
            }
        }
    }

    /** Somebody asks: acknowledgements are done when this returns. */
    private void confirm() {
        Vendor.Acknowledgement last = held;
        held = null;
        try {
            if (last != null) {
                link.vendor.answered(last);
            } else if (unconfirmed) {
                link.vendor.confirm(shared());
            }
            unconfirmed = false;
        } catch (JMSException | RuntimeException error) {
            fail(error, -1);
        }
    }

    private void shut(int id, boolean requeue) {
        acknowledgeHeld();
        Receiver one = receivers.get(id);
        if (one == null) {
            return;
        }
        one.running = false;
        one.leaving = true;
        boolean holds = !one.outstanding.isEmpty() || !one.expected.isEmpty();
        if (!holds || requeue && mode != Link.TRANSACTED) {
            receivers.remove(id);
            end(one);
        }
    }

    private void end(Receiver one) {
        try {
            if (one.ownSession && !one.outstanding.isEmpty()) {
                one.session.recover();
            }
            one.forget();
            one.closeConsumer();
            if (one.ownSession) {
                one.session.close();
            }
        } catch (JMSException | RuntimeException error) {
            fail(error, -1);
        }
        if (one.durable != null) {
            link.subscribed(one.durable);
        }
    }

    private void close() {
        closed = true;
        flush();
        acknowledgeHeld();
        try {
            if (shared != null && mode == Link.TRANSACTED) {
                shared.rollback();
            }
        } catch (JMSException | RuntimeException error) {
            fail(error, -1);
        }
        for (Receiver one : receivers.values()) {
            end(one);
        }
        receivers.clear();
        try {
            if (shared != null) {
                shared.close();
            }
        } catch (JMSException | RuntimeException error) {
            fail(error, -1);
        }
    }
}
