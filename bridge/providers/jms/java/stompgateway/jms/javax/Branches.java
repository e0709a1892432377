package stompgateway.jms.javax;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.transaction.xa.XAException;
import stompgateway.jms.BranchId;

/**
 * The branches that were started on any connection of a factory and are neither committed nor rolled back: whose they are, and what not every
 * provider remembers of them.
 */
final class Branches {
    private static final class Branch {
        /** Null once it is prepared, or that session has gone: who has the branch then is the provider. */
        private XaWork starter;
        private boolean received;
        private XAException doom;

        private Branch(XaWork starter) {
            this.starter = starter;
        }
    }

    private final Map<BranchId, Branch> open = new HashMap<>();
    /** Of the sessions of any factory of this class path that are open, by their numbers; those of a connection that is lost go with them. */
    private static final Map<Integer, WeakReference<Resource>> RESOURCES = new HashMap<>();

    static void opened(int session, Resource resource) {
        synchronized (RESOURCES) {
            RESOURCES.values().removeIf(one -> one.get() == null);
            RESOURCES.put(session, new WeakReference<>(resource));
        }
    }

    static void closed(int session) {
        synchronized (RESOURCES) {
            RESOURCES.remove(session);
        }
    }

    /** That of a session that is open, or null. */
    static Resource resource(int session) {
        synchronized (RESOURCES) {
            WeakReference<Resource> found = RESOURCES.get(session);
            return found == null ? null : found.get();
        }
    }

    /** @throws XAException there is such a branch */
    synchronized void checkNew(BranchId xid) throws XAException {
        if (open.containsKey(xid)) {
            throw Resource.error(XAException.XAER_DUPID, "there is such a branch already");
        }
    }

    synchronized void started(BranchId xid, XaWork starter) {
        open.put(xid, new Branch(starter));
    }

    /** It can only be rolled back; the first reason counts. */
    synchronized void doom(BranchId xid, XAException reason) {
        Branch branch = open.get(xid);
        if (branch != null && branch.doom == null) {
            branch.doom = reason;
        }
    }

    /** @throws XAException it can only be rolled back */
    synchronized void check(BranchId xid) throws XAException {
        Branch branch = open.get(xid);
        if (branch != null && branch.doom != null) {
            throw branch.doom;
        }
    }

    synchronized void prepared(BranchId xid) {
        Branch branch = open.get(xid);
        if (branch != null) {
            branch.starter = null;
        }
    }

    /** It is no more. */
    synchronized void over(BranchId xid) {
        open.remove(xid);
    }

    synchronized void received(BranchId xid) {
        Branch branch = open.get(xid);
        if (branch != null) {
            branch.received = true;
        }
    }

    /** Whether it has received and is neither committed nor rolled back. */
    synchronized boolean holdsReceipts(BranchId xid) {
        Branch branch = open.get(xid);
        return branch != null && branch.received;
    }

    /**
     * A session has gone, be it that nobody has closed it. From now on its provider alone says what became of its branches: a call may have been lost that
     * was done. What can only be rolled back stays so.
     */
    synchronized void left(XaWork starter) {
        open.values().removeIf(one -> one.starter == starter && one.doom == null);
        for (Branch one : open.values()) {
            if (one.starter == starter) {
                one.starter = null;
            }
        }
    }

    /** Those that this session has started and that are not prepared. */
    synchronized List<BranchId> of(XaWork starter) {
        List<BranchId> found = new ArrayList<>();
        for (Map.Entry<BranchId, Branch> one : open.entrySet()) {
            if (one.getValue().starter == starter) {
                found.add(one.getKey());
            }
        }
        return found;
    }
}
