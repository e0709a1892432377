package stompgateway.jms.javax;

import java.util.List;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.Session;

/**
 * The acknowledgements of a session without transactions. The last one is held back for as long as a turn, so that a question behind it can make it one
 * that is answered; nobody waits for the others.
 */
final class Acknowledgements {
    private final Vendor vendor;
    private final boolean individual;
    private final Failing failing;
    private Vendor.Acknowledgement held;
    private boolean unconfirmed;

    /** Who is told that one has failed. */
    interface Failing {
        void fail(Throwable error);
    }

    /** Whose answers say that all before is done. */
    interface Asked {
        Session session() throws JMSException;
    }

    /** @param individual whether each delivery is acknowledged by itself */
    Acknowledgements(Vendor vendor, boolean individual, Failing failing) {
        this.vendor = vendor;
        this.individual = individual;
        this.failing = failing;
    }

    /** Acknowledge these of a consumer, one at least, which has them outstanding no more. */
    void add(Receiver one, List<Receiver.Delivery> deliveries) {
        try {
            Vendor.Acknowledgement all = one.outstanding.isEmpty() ? vendor.ofAll(one.session) : null;
            if (individual && all == null) {
                for (int at = 0; at < deliveries.size() - 1; at++) {
                    deliveries.get(at).message.acknowledge();
                }
            }
            Message last = deliveries.get(deliveries.size() - 1).message;
            make();
            held = individual && all != null ? all : last::acknowledge;
        } catch (JMSException | RuntimeException error) {
            failing.fail(error);
        }
    }

    /** The last acknowledgement is made without waiting for an answer: nobody has asked yet whether it is durable. */
    void make() {
        Vendor.Acknowledgement last = held;
        held = null;
        if (last != null) {
            try {
                last.run();
                unconfirmed = true;
            } catch (JMSException | RuntimeException error) {
                failing.fail(error);
            }
        }
    }

    /** Somebody asks: acknowledgements are done when this returns. */
    void confirm(Asked asked) {
        Vendor.Acknowledgement last = held;
        held = null;
        try {
            if (last != null) {
                vendor.answered(last);
            } else if (unconfirmed) {
                vendor.confirm(asked.session());
            }
            unconfirmed = false;
        } catch (JMSException | RuntimeException error) {
            failing.fail(error);
        }
    }
}
