package stompgateway.jms.javax;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import javax.jms.JMSException;
import javax.jms.Message;
import stompgateway.jms.Failure;
import stompgateway.jms.Heap;
import stompgateway.jms.Link;
import stompgateway.jms.Octets;

/** Receives from the consumers of a session, many messages at a time, and waits where there are none. */
final class Reception {
    /** One turn delivers no more than about so much. */
    private static final int MOST_MESSAGES = 1000;
    private static final int MOST_OCTETS = 1 << 20;
    /** How long receiving may go on with what comes without waiting, in nanoseconds. */
    private static final long LONGEST_RUN = 5_000_000;
    /** How long is waited at a time, in milliseconds: at first, and after long quiet. What comes is received at once; questions wait so long. */
    private static final long SHORTEST_WAIT = 1;
    private static final long LONGEST_WAIT = 10;

    private final int mode;
    private final MessageReader reader;
    private final Map<Receiver, Throwable> failed = new LinkedHashMap<>();
    private Octets out;

    Reception(int mode, MessageReader reader) {
        this.mode = mode;
        this.reader = reader;
    }

    /**
     * Receive as far as credit goes, until there is something or somebody wakes us.
     *
     * @param out to which deliveries are written
     * @param wake see {@link stompgateway.jms.Work#turn}
     * @param atOnce who asked something is to be answered, and nothing is waited for
     * @return consumers that have failed, and how
     */
    Map<Receiver, Throwable> receive(Collection<Receiver> receivers, Octets out, AtomicBoolean wake, boolean atOnce) {
        this.out = out;
        failed.clear();
        boolean window = mode == Link.BATCH || mode == Link.ONE_BY_ONE;
        long wait = atOnce ? 0 : SHORTEST_WAIT;
        while (true) {
            List<Receiver> ready = new ArrayList<>();
            for (Receiver one : receivers) {
                if (one.ready(window) && !failed.containsKey(one)) {
                    ready.add(one);
                }
            }
            if (ready.isEmpty()) {
                return failed;
            }
            for (Receiver one : ready) {
                run(one, wait == 0 ? 0 : Math.max(1, wait / ready.size()));
            }
            if (atOnce || out.size() > 0 || wake.get() || !failed.isEmpty()) {
                return failed;
            }
            wait = Math.min(wait * 2, LONGEST_WAIT);
        }
    }

    /** Receive from one consumer, at first waiting so many milliseconds, then without. */
    private void run(Receiver one, long wait) {
        long start = System.nanoTime();
        int size = out.size();
        int limit = mode == Link.ONE_BY_ONE ? 1 : MOST_MESSAGES;
        Receiver.Delivery delivery = null;
        try {
            Message message = one.next(wait);
            if (message == null) {
                rest(one, start, wait);
            }
            for (int count = 0; message != null;) {
                delivery = one.take(message);
                if (delivery != null) {
                    deliver(one, delivery);
                    count++;
                }
                boolean enough = count >= limit || out.size() - size > MOST_OCTETS || System.nanoTime() - start > LONGEST_RUN + wait * 1_000_000;
                message = enough || one.credit <= 0 || one.octets <= 0 ? null : one.next(0);
            }
            if (one.browses() && one.credit > 0 && one.atEnd()) {
                out.u8(8).u32(one.id);
                one.running = false;
            }
        } catch (JMSException | Failure | RuntimeException | LinkageError error) {
            failed.put(one, error);
        }
    }

    /** @throws Failure there is no room for it, and its session is to be given up, which gives it back */
    private void deliver(Receiver one, Receiver.Delivery delivery) throws JMSException, Failure {
        int start = out.size();
        int octets;
        try {
            out.u8(4).u32(one.id).i64(delivery.key).u32(one.attempts(delivery));
            octets = reader.write(out, one.session, delivery.message, one.destination, one.topic);
        } catch (Throwable error) {
            out.truncate(start);
            if (Heap.tooSmall(error)) {
                // Without its cause, by which the whole process would end: the session still holds the message.
                throw new Failure(Failure.UNAVAILABLE, "Java has run out of memory while it read message " + delivery.messageId + "; " + Heap.remedy(), null);
            }
            // Whatever it is, it is this message's, and the next may be read: a length that is damaged is enough to run out of memory.
            octets = deliverUnreadable(one, delivery, error);
        }
        one.measured(octets);
        one.credit--;
        if (one.octets != Long.MAX_VALUE) {
            one.octets -= octets;
        }
    }

    /** What is known of it, and why that is not all. */
    private int deliverUnreadable(Receiver one, Receiver.Delivery delivery, Throwable error) throws JMSException {
        int start = out.size();
        try {
            Lenient known = new Lenient(delivery.message, error);
            out.u8(10).u32(one.id).i64(delivery.key).u32(one.attempts(delivery, known.view()));
            int octets = reader.writeKnown(out, known, one.destination, one.topic);
            out.text(known.told());
            return octets;
        } catch (Throwable worse) {
            // Half of it would make whatever else is answered now unreadable, too.
            out.truncate(start);
        }
        try {
            out.u8(10).u32(one.id).i64(delivery.key).u32(1);
            reader.writeNothing(out, delivery.messageId, one.destination, one.topic);
            out.text(told(error));
            return 0;
        } catch (Throwable worst) {
            out.truncate(start);
            throw worst;
        }
    }

    private static String told(Throwable error) {
        try {
            return Failures.of(error).getMessage();
        } catch (Throwable worse) {
            return error.getClass().getName();
        }
    }

    /** Some providers do not wait when their connection is gone; that must not keep a processor busy. */
    private static void rest(Receiver one, long start, long wait) {
        long left = wait * 1_000_000 - (System.nanoTime() - start);
        if (left > 0 && !one.browses()) {
            LockSupport.parkNanos(left);
        }
    }
}
