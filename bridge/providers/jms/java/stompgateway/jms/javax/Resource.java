package stompgateway.jms.javax;

import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.function.BiConsumer;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import stompgateway.jms.BranchId;

/**
 * The XAResource of a session, with what not every provider sees to: that a branch that can only be rolled back is not prepared, that what was
 * asked of a branch fails if something before it has failed, and that a branch which is not prepared ends with its session.
 */
final class Resource {
    private volatile XAResource resource;
    private final Branches branches;
    private final XaWork session;
    private final boolean forgetsReceipts;
    /** The branches in which the session has received, until somebody looks whether they are over. */
    private final Set<BranchId> received = new HashSet<>();
    /** Those of them whose consumers are closed. */
    private final Set<BranchId> abandoned = new HashSet<>();
    private BranchId associated;
    /** The branch whose start was refused last, so that what was asked of it ahead fails, too; and why it was. */
    private BranchId refused;
    private XAException refusal;

    Resource(XAResource resource, Branches branches, Vendor vendor, XaWork session) {
        this.resource = resource;
        this.branches = branches;
        this.session = session;
        forgetsReceipts = vendor.forgetsReceipts();
    }

    /** Whether what the session does now is a branch's. */
    boolean associated() {
        return associated != null;
    }

    boolean associated(BranchId xid) {
        return xid.equals(associated);
    }

    static XAException error(int code, String text) {
        XAException error = new XAException(text);
        error.errorCode = code;
        return error;
    }

    private static XAException of(Throwable error) {
        return error instanceof XAException ? (XAException) error : error(XAException.XAER_RMERR, Failures.of(error).getMessage());
    }

    void start(BranchId xid, int flags) throws XAException {
        try {
            if (associated != null) {
                throw error(XAException.XAER_PROTO, "the session is associated with a branch, which is to be ended first");
            }
            if (flags == XAResource.TMNOFLAGS) {
                branches.checkNew(xid);
            }
            received.removeIf(one -> !branches.holdsReceipts(one));
            abandoned.removeIf(one -> !branches.holdsReceipts(one));
            if (forgetsReceipts && !received.isEmpty()) {
                resource = session.renew();
                abandonReceipts();
            }
            resource.start(xid, flags);
        } catch (XAException | RuntimeException | LinkageError error) {
            refused = xid;
            refusal = of(error);
            throw error;
        }
        if (xid.equals(refused)) {
            refused = null;
        }
        if (flags == XAResource.TMNOFLAGS) {
            branches.started(xid, session);
        }
        associated = xid;
    }

    /** The session has received in the branch that is associated. */
    void received() {
        received.add(associated);
        branches.received(associated);
    }

    /** @throws XAException the association cannot be given up and taken up again */
    void checkSuspend() throws XAException {
        if (forgetsReceipts) {
            throw error(XAException.XAER_PROTO, "with this provider a branch that has received cannot be suspended");
        }
    }

    /** @param doom why the branch can only be rolled back, or null */
    void end(BranchId xid, int flags, XAException doom) throws XAException {
        check(xid);
        XAException why = doom;
        try {
            resource.end(xid, doom != null ? XAResource.TMFAIL : flags);
            if (associated(xid)) {
                associated = null;
            }
        } catch (XAException | RuntimeException | LinkageError error) {
            XAException known = of(error);
            if (associated(xid) && known.errorCode != XAException.XAER_PROTO && known.errorCode != XAException.XAER_INVAL) {
                associated = null;
            }
            if (doom == null) {
                branches.doom(xid, known);
                throw error;
            }
            doom.addSuppressed(error);
        }
        if (doom != null) {
            branches.doom(xid, doom);
            throw doom;
        }
        if (flags == XAResource.TMFAIL) {
            branches.doom(xid, error(XAException.XA_RBROLLBACK, "the branch was ended as failed"));
        }
    }

    /** The branch, which was ended, can only be rolled back. @param why is what every call for it but that is told */
    void doom(BranchId xid, XAException why) {
        branches.doom(xid, why);
    }

    int prepare(BranchId xid) throws XAException {
        check(xid);
        checkEnded(xid);
        try {
            int vote = resource.prepare(xid);
            if (vote == XAResource.XA_RDONLY) {
                branches.over(xid);
            } else {
                branches.prepared(xid);
            }
            return vote;
        } catch (XAException error) {
            throw gone(xid, error);
        }
    }

    void commit(BranchId xid, boolean onePhase) throws XAException {
        if (onePhase) {
            check(xid);
        }
        checkEnded(xid);
        try {
            resource.commit(xid, onePhase);
            branches.over(xid);
        } catch (XAException error) {
            throw gone(xid, error);
        }
    }

    void rollback(BranchId xid) throws XAException {
        checkEnded(xid);
        if (xid.equals(refused)) {
            refused = null;
        }
        // With a consumer there, the first that is given back may go to it and come behind the others.
        boolean closing = associated == null && abandoned.contains(xid);
        if (closing) {
            session.closeConsumers();
            abandonReceipts();
        }
        try {
            resource.rollback(xid);
            branches.over(xid);
        } catch (XAException error) {
            throw gone(xid, error);
        } finally {
            if (closing) {
                session.reopenConsumers();
            }
        }
    }

    private void abandonReceipts() {
        abandoned.addAll(received);
        received.clear();
    }

    /** @param session the number of another one. @return whether that is known to have the same resource manager */
    boolean isSame(int session) throws XAException {
        Resource other = Branches.resource(session);
        return other != null && resource.isSameRM(other.resource);
    }

    void forget(BranchId xid) throws XAException {
        resource.forget(xid);
        branches.over(xid);
    }

    /** One scan from its start to its end; a provider may give all at once, all with each call, or some with each. */
    Collection<BranchId> recover() throws XAException {
        Set<BranchId> found = new LinkedHashSet<>();
        boolean more = add(found, resource.recover(XAResource.TMSTARTRSCAN));
        while (more) {
            more = add(found, resource.recover(XAResource.TMNOFLAGS));
        }
        add(found, resource.recover(XAResource.TMENDRSCAN));
        return found;
    }

    private static boolean add(Set<BranchId> found, Xid[] some) {
        boolean more = false;
        if (some != null) {
            for (Xid one : some) {
                more |= found.add(BranchId.of(one));
            }
        }
        return more;
    }

    /** The session is to be closed: what it is associated with can only be rolled back. @param failed is given a branch that could not be ended */
    void leave(BiConsumer<BranchId, Throwable> failed) {
        if (associated != null) {
            try {
                resource.end(associated, XAResource.TMFAIL);
            } catch (XAException | RuntimeException error) {
                failed.accept(associated, error);
            }
            branches.doom(associated, error(XAException.XA_RBROLLBACK, "a session that had joined the branch was closed before its end"));
            associated = null;
        }
    }

    /** Roll back what the session has started and is not prepared. @param failed is given those that could not be */
    void rollbackAll(BiConsumer<BranchId, Throwable> failed) {
        for (BranchId one : branches.of(session)) {
            try {
                resource.rollback(one);
            } catch (XAException | RuntimeException error) {
                failed.accept(one, error);
            }
            branches.over(one);
        }
    }

    /** @throws XAException something of the branch has failed before */
    private void check(BranchId xid) throws XAException {
        if (xid.equals(refused)) {
            throw refusal;
        }
        branches.check(xid);
    }

    private void checkEnded(BranchId xid) throws XAException {
        if (associated(xid)) {
            throw error(XAException.XAER_PROTO, "the branch is to be ended first");
        }
    }

    /** @return the error, which may say that there is no such branch any more */
    private XAException gone(BranchId xid, XAException error) {
        boolean rolledBack = error.errorCode >= XAException.XA_RBBASE && error.errorCode <= XAException.XA_RBEND;
        if (rolledBack || error.errorCode == XAException.XAER_NOTA) {
            branches.over(xid);
        }
        return error;
    }
}
