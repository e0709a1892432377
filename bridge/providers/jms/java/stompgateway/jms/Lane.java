package stompgateway.jms;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Single calls, one after the other on a thread of their own. */
final class Lane implements Channels.Channel, Runnable {
    private static final ByteBuffer END = ByteBuffer.allocate(0);

    private final int number;
    private final Wire wire;
    private final Calls calls;
    private final Runnable over;
    private final BlockingQueue<ByteBuffer> asked = new LinkedBlockingQueue<>();
    private volatile boolean abandoned;

    Lane(int number, Wire wire, Calls calls, Runnable over) {
        this.number = number;
        this.wire = wire;
        this.calls = calls;
        this.over = over;
    }

    @Override
    public void asked(Wire.Frame frame) {
        if (frame.type == Wire.CALL) {
            asked.add(frame.payload);
        }
    }

    @Override
    public void end() {
        asked.add(END);
    }

    @Override
    public void abandon() {
        abandoned = true;
        end();
    }

    @Override
    public void run() {
        try {
            for (ByteBuffer one = asked.take(); one != END && !abandoned; one = asked.take()) {
                make(one);
            }
            over.run();
            wire.write(Wire.ENDED, number, new Octets());
        } catch (InterruptedException | IOException error) {
            // By the reading thread the whole process ends where the gateway is gone.
            Thread.currentThread().interrupt();
        }
    }

    /** What comes of one that was abandoned is told all the same: the gateway may have to dispose of it. */
    private void make(ByteBuffer call) throws IOException {
        int tag = call.getInt();
        Octets result = new Octets().u32(tag);
        try {
            calls.make(call, result);
        } catch (Throwable error) {
            Heap.check(error);
            Failure known = Failure.of(error);
            wire.write(Wire.FAILURE, number, new Octets().u32(tag).u32(known.kind()).text(known.brief()));
            return;
        }
        wire.write(Wire.RESULT, number, result);
    }
}
