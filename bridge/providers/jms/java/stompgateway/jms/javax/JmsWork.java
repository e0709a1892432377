package stompgateway.jms.javax;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import javax.jms.JMSException;
import javax.jms.Session;
import stompgateway.jms.Failure;
import stompgateway.jms.Link;

/**
 * A session of the seam: one session of JMS where it is transacted; else one to send, and one for each consumer, so that what one of them has is
 * settled or given back without the others'.
 */
final class JmsWork extends SessionWork {
    private final int mode;
    private final int individual;
    private final Acknowledgements acknowledgements;
    private Session shared;
    private Sender sender;

    JmsWork(JmsLink link, int mode, int individual) {
        super(link, mode);
        this.mode = mode;
        this.individual = individual;
        acknowledgements = new Acknowledgements(link.vendor, mode == Link.INDIVIDUAL, error -> fail(error, -1));
    }

    @Override
    boolean questioned() {
        flush();
        acknowledgements.make();
        return !closed;
    }

    @Override
    void failed(Receiver one, Throwable error) {
        end(one);
        ended(one.id, error);
    }

    @Override
    void question(int code, ByteBuffer asked) {
        switch (code) {
            case 1:
                send(asked);
                break;
            case 2:
                open(asked);
                break;
            case 5:
                settle(asked);
                break;
            case 6:
                flush();
                acknowledgements.confirm(this::shared);
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
        tell(tag);
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
        acknowledgements.make();
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
        Wanted wanted = new Wanted(asked);
        Session own = null;
        try {
            if (mode != Link.TRANSACTED || wanted.browse) {
                own = newSession(false, mode == Link.INDIVIDUAL && !wanted.browse ? individual : Session.CLIENT_ACKNOWLEDGE);
            }
            open(wanted, own == null ? shared() : own, own != null);
        } catch (JMSException | Failure | RuntimeException | LinkageError error) {
            refused(wanted.id, error);
            try {
                if (own != null) {
                    own.close();
                }
            } catch (JMSException | RuntimeException second) {
                error.addSuppressed(second);
            }
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
        if (one == null) {
            // It has failed meanwhile, so the provider delivers them again.
            fail(new Failure(Failure.UNAVAILABLE, "what was acknowledged had gone back to the provider before", null), -1);
        }
        if (deliveries.isEmpty()) {
            return;
        }
        acknowledgements.add(one, deliveries);
        if (one.leaving && one.outstanding.isEmpty()) {
            acknowledgements.make();
            receivers.remove(one.id);
            end(one);
        }
    }

    private void shut(int id, boolean requeue) {
        acknowledgements.make();
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
        // Whatever fails below.
        one.uncount();
        try {
            if (one.ownSession && !one.outstanding.isEmpty()) {
                one.session.recover();
            }
            one.forget();
            one.retire();
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
        acknowledgements.make();
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
