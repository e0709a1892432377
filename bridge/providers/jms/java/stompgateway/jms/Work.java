package stompgateway.jms;

import java.nio.ByteBuffer;

/** A session at work: what is asked and what comes of it are octets, in the layout of batches.py. */
public interface Work {
    /**
     * Do what is asked, in order, then receive as far as credit goes.
     *
     * @param asked the questions
     * @param wake one octet that the caller sets from another thread when it has more to ask: the call then returns soon
     * @return the answers; they are never empty unless woken
     */
    byte[] turn(ByteBuffer asked, ByteBuffer wake);
}
