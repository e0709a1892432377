package stompgateway.jms.javax;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import javax.jms.JMSException;
import javax.jms.XASession;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import stompgateway.jms.BranchId;
import stompgateway.jms.Failure;
import stompgateway.jms.Link;

/**
 * An XASession of the seam. It sends and receives only while a branch is associated, and the branch has all of that: what goes wrong with any of
 * it leaves the branch nothing but to be rolled back.
 */
final class XaWork extends SessionWork {
    /** What is asked of the XAResource, in the order of batches.py. */
    private static final int START = 0;
    private static final int END = 1;
    private static final int PREPARE = 2;
    private static final int COMMIT = 3;
    private static final int ROLLBACK = 4;
    private static final int RECOVER = 5;
    private static final int FORGET = 6;
    private static final int SAME = 7;

    private final int number;
    private final Resource resource;
    private XASession session;
    private Sender sender;
    /** How many messages were handed over of which nothing was told yet. */
    private int handed;
    /** Who has asked since then whether anything is wrong. */
    private final List<Integer> asking = new ArrayList<>();

    /** @param number what other sessions call this one, in SAME */
    XaWork(JmsLink link, XASession session, int number) {
        super(link, Link.XA);
        this.number = number;
        this.session = session;
        resource = new Resource(session.getXAResource(), link.branches, link.vendor, this);
        Branches.opened(number, resource);
        sender = new Sender(session, link.destinations, link.notes, link.vendor.confirmations());
    }

    @Override
    public void over() {
        super.over();
        Branches.closed(number);
        link.branches.left(this);
    }

    @Override
    boolean questioned() {
        confirm();
        return resource.associated() && failure == null;
    }

    @Override
    void failed(Receiver one, Throwable error) {
        // It may have received what nobody was given.
        fail(error, -1);
        ended(one.id, error);
        leave(one);
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
                asking.add(asked.getInt());
                if (handed == 0) {
                    confirm();
                }
                break;
            case 10:
                shut(asked.getInt());
                asked.get();
                break;
            case 11:
                close();
                break;
            case 12:
                call(asked);
                break;
            default:
                throw new IllegalArgumentException("no such question");
        }
    }

    // --- the branch's work

    private void send(ByteBuffer asked) {
        if (!asking.isEmpty()) {
            confirm();
        }
        int count = asked.getInt();
        int end = asked.getInt() + asked.position();
        int done = 0;
        if (!resource.associated() && failure == null) {
            fail(new Failure(Failure.OTHER, "the branch was not started", null), sent);
        }
        if (failure == null) {
            try {
                for (; done < count; done++) {
                    sender.send(asked);
                }
            } catch (JMSException | Failure | RuntimeException | LinkageError error) {
                fail(error, sent + done);
            }
        }
        asked.position(end);
        sent += done;
        handed += done;
        if (done < count) {
            // One before it may be refused.
            confirm();
            out.u8(2).u32(count - done);
        }
    }

    /**
     * Wait until the provider has taken what was handed over, where it does not say so with each; tell of that, and answer who has asked since. The
     * end of a branch comes first where it is asked in the same turn: the provider answers it behind the messages, so that both take one way.
     */
    private void confirm() {
        int left = handed == 0 ? 0 : sender.unconfirmed();
        if (left > 0) {
            failure = null;
            fail(sender.refusal(), Math.max(0, sent - left));
            sender.forget();
            sent -= handed;
            out.u8(2).u32(handed);
        } else if (handed > 0) {
            out.u8(1).u32(handed).raw(sender.committed());
        }
        handed = 0;
        asking.forEach(this::tell);
        asking.clear();
    }

    private void fail(Throwable error, int at) {
        if (failure == null) {
            failure = Failures.of(error);
            failedAt = at;
        }
    }

    private void open(ByteBuffer asked) {
        Wanted wanted = new Wanted(asked);
        try {
            open(wanted, session, false);
        } catch (JMSException | Failure | RuntimeException | LinkageError error) {
            refused(wanted.id, error);
        }
    }

    private void settle(ByteBuffer asked) {
        Receiver one = receivers.get(asked.getInt());
        for (int left = asked.getInt(); left > 0; left--) {
            long key = asked.getLong();
            if (one != null) {
                one.settle(key);
            }
        }
    }

    /** What it has received stays with the branch, and so does the consumer. */
    private void shut(int id) {
        Receiver one = receivers.get(id);
        if (one != null) {
            one.running = false;
            one.leaving = true;
            if (one.outstanding.isEmpty()) {
                receivers.remove(id);
                leave(one);
            }
        }
    }

    private void leave(Receiver one) {
        try {
            one.retire();
        } catch (JMSException | RuntimeException error) {
            note("closing a consumer failed", error);
        }
        if (one.durable != null) {
            link.subscribed(one.durable);
        }
    }

    /** The branch is no more this session's: what it has received is settled with it, one way or the other. */
    private void dissociate() {
        failure = null;
        sent = 0;
        boolean voided = false;
        for (Iterator<Receiver> all = receivers.values().iterator(); all.hasNext();) {
            Receiver one = all.next();
            voided |= one.holdsUnsettled();
            one.forget();
            if (one.leaving) {
                all.remove();
                leave(one);
            }
        }
        if (voided) {
            out.u8(6);
        }
    }

    /** Go on with another session of JMS. @return its resource */
    XAResource renew() throws XAException {
        closeConsumers();
        sender.close();
        try {
            session.close();
            session = link.newXaSession();
        } catch (JMSException error) {
            XAException told = Resource.error(XAException.XAER_RMFAIL, "the next session cannot be opened");
            told.initCause(error);
            throw told;
        }
        sender = new Sender(session, link.destinations, link.notes, link.vendor.confirmations());
        reopenConsumers();
        return session.getXAResource();
    }

    /** Those of JMS alone, for {@link #reopenConsumers}. */
    void closeConsumers() {
        for (Receiver one : receivers.values()) {
            try {
                one.closeConsumer();
            } catch (JMSException | RuntimeException error) {
                note("closing a consumer failed", error);
            }
        }
    }

    void reopenConsumers() {
        for (Iterator<Receiver> all = receivers.values().iterator(); all.hasNext();) {
            Receiver one = all.next();
            try {
                one.reopen(session);
            } catch (JMSException | RuntimeException error) {
                all.remove();
                ended(one.id, error);
                leave(one);
            }
        }
    }

    // --- the calls of XA

    private void call(ByteBuffer asked) {
        int tag = asked.getInt();
        int operation = asked.get();
        int flags = asked.getInt();
        BranchId xid = operation == RECOVER || operation == SAME ? null : BranchId.read(asked);
        int vote = 0;
        Collection<BranchId> found = null;
        if (operation != END || flags != XAResource.TMSUCCESS) {
            confirm();
        }
        try {
            switch (operation) {
                case START:
                    resource.start(xid, flags);
                    failure = null;
                    sent = 0;
                    break;
                case END:
                    end(xid, flags);
                    break;
                case PREPARE:
                    vote = resource.prepare(xid);
                    break;
                case COMMIT:
                    resource.commit(xid, flags != 0);
                    break;
                case ROLLBACK:
                    resource.rollback(xid);
                    break;
                case RECOVER:
                    found = resource.recover();
                    break;
                case FORGET:
                    resource.forget(xid);
                    break;
                case SAME:
                    vote = resource.isSame(flags) ? 1 : 0;
                    break;
                default:
                    throw new IllegalArgumentException("no such call of XA");
            }
            answer(tag, 0, vote, "", found);
        } catch (XAException error) {
            Failure known = Failures.of(error);
            if (known.kind() == Failure.UNAVAILABLE) {
                answer(tag, 2, known.kind(), known.getMessage(), null);
            } else {
                answer(tag, 1, error.errorCode, told(error, known), null);
            }
        } catch (RuntimeException | LinkageError error) {
            Failure known = Failures.of(error);
            answer(tag, known.kind() == Failure.OTHER ? 1 : 2, known.kind() == Failure.OTHER ? XAException.XAER_RMERR : known.kind(),
                    known.getMessage(), null);
        }
    }

    private void answer(int tag, int how, int value, String text, Collection<BranchId> found) {
        out.u8(9).u32(tag).u8(how).u32(value).text(text).u32(found == null ? 0 : found.size());
        if (found != null) {
            for (BranchId one : found) {
                one.write(out);
            }
        }
    }

    /** Its message, and what it was caused by where that says more. */
    private static String told(XAException error, Failure known) {
        String text = error.getMessage();
        Throwable cause = error.getCause();
        boolean enough = text != null && (cause == null || cause.getMessage() == null || text.contains(cause.getMessage()));
        return enough ? text : known.getMessage();
    }

    private void end(BranchId xid, int flags) throws XAException {
        boolean ours = resource.associated(xid);
        if (ours && hasReceived()) {
            resource.received();
            if (flags == XAResource.TMSUSPEND) {
                resource.checkSuspend();
            }
        }
        XAException doom = null;
        if (ours && failure != null && flags != XAResource.TMFAIL) {
            doom = Resource.error(XAException.XA_RBOTHER, failure.getMessage());
        } else if (ours && flags == XAResource.TMSUCCESS && holdsUnsettled()) {
            doom = Resource.error(XAException.XAER_PROTO, "not everything that was delivered in the branch was acknowledged; it can only be rolled back");
        }
        XAException refused = null;
        try {
            resource.end(xid, flags, doom);
        } finally {
            boolean well = failure == null;
            confirm();
            if (ours && well && failure != null) {
                refused = Resource.error(XAException.XA_RBOTHER, failure.getMessage());
            }
            if (ours && !resource.associated() && (flags != XAResource.TMSUSPEND || doom != null)) {
                dissociate();
            }
        }
        if (refused != null) {
            resource.doom(xid, refused);
            throw refused;
        }
    }

    private boolean hasReceived() {
        for (Receiver one : receivers.values()) {
            if (!one.outstanding.isEmpty()) {
                return true;
            }
        }
        return false;
    }

    private boolean holdsUnsettled() {
        for (Receiver one : receivers.values()) {
            if (one.holdsUnsettled()) {
                return true;
            }
        }
        return false;
    }

    // --- its end

    private void close() {
        confirm();
        closed = true;
        Branches.closed(number);
        resource.leave(this::unresolved);
        for (Receiver one : receivers.values()) {
            leave(one);
        }
        receivers.clear();
        resource.rollbackAll(this::unresolved);
        sender.close();
        try {
            session.close();
        } catch (JMSException | RuntimeException error) {
            note("closing a session failed", error);
        }
    }

    private void unresolved(BranchId xid, Throwable error) {
        note("rolling branch " + xid + " back, as its session is closed, failed", error);
    }

    /** For the log; but where there is no connection, of which others tell, all this has come to its end with it. */
    private void note(String what, Throwable error) {
        Failure known = Failures.of(error);
        if (known.kind() != Failure.UNAVAILABLE) {
            out.u8(7).text(what + ": " + known.getMessage());
        }
    }
}
