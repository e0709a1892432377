package stompgateway.jms;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicBoolean;

/** A session at work: what is asked and what comes of it are octets, in the layout of batches.py. */
public interface Work {
    /**
     * Do what is asked, in order, then receive as far as credit goes.
     *
     * @param asked the questions
     * @param wake set from another thread when there is more to ask: the call then returns soon
     * @return the answers; they are never empty unless woken
     * @throws Failure nothing more can be done
     */
    Octets turn(ByteBuffer asked, AtomicBoolean wake) throws Failure;

    /** Its thread ends, be it that nobody has closed it. */
    void over();

    /** Whether anything may come without being asked for. If not, no turn is taken but for questions. */
    boolean listens();
}
