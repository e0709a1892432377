package stompgateway.jms;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/** What the gateway asks, by channel: a {@link Lane} for single calls, or the {@link Turns} of a session. Each has a thread; this one never waits for a provider. */
final class Channels {
    /** Something that the gateway asks, by the number that it gave. Called by the reading thread, and must not block. */
    interface Channel {
        /** A frame of the kinds that are this channel's alone. */
        void asked(Wire.Frame frame) throws IOException;

        /** Nothing more will be asked: the thread ends when what was asked is done, and says so. */
        void end();

        /** The gateway waits for nothing any more; the thread ends when its call returns, and says so. */
        void abandon();
    }

    private final Wire wire;
    private final String madeOf;
    private final Calls calls;
    private final ConcurrentMap<Integer, Channel> open = new ConcurrentHashMap<>();

    Channels(Wire wire, String madeOf) {
        this.wire = wire;
        this.madeOf = madeOf;
        calls = new Calls(wire);
    }

    /** Serve until the gateway ends. */
    void serve() throws IOException {
        Wire.Frame frame = wire.read();
        if (frame == null) {
            return;
        }
        greet(frame);
        while ((frame = wire.read()) != null) {
            serve(frame);
        }
    }

    /** Settings of the system, which belong to no command line as some are secret; then who we are. */
    private void greet(Wire.Frame hello) throws IOException {
        int version = hello.type == Wire.HELLO ? hello.payload.getShort() : -1;
        if (version != Wire.VERSION) {
            throw new IOException("the gateway speaks version " + version + ", these classes " + Wire.VERSION);
        }
        String[] properties = Calls.pairs(hello.payload);
        for (int at = 0; at < properties.length; at += 2) {
            System.setProperty(properties[at], properties[at + 1]);
        }
        Octets ready = new Octets().u16(Wire.VERSION).text(madeOf).text(System.getProperty("java.version", "")).i64(Heap.largest());
        wire.write(Wire.READY, 0, ready);
    }

    private void serve(Wire.Frame frame) throws IOException {
        Channel channel = open.get(frame.channel);
        switch (frame.type) {
            case Wire.BEAT:
                wire.write(Wire.ALIVE, 0, new Octets().i64(Heap.used()).i64(Heap.largest()).u32(Thread.activeCount()));
                return;
            case Wire.CALL:
                if (channel == null) {
                    channel = start(frame.channel, new Lane(frame.channel, wire, calls, () -> open.remove(frame.channel)));
                }
                break;
            case Wire.OPEN:
                start(frame.channel, new Turns(frame.channel, wire, opening(frame.payload), () -> open.remove(frame.channel)));
                return;
            case Wire.END:
                if (channel != null) {
                    channel.end();
                }
                return;
            case Wire.ABANDON:
                if (channel != null) {
                    channel.abandon();
                }
                return;
            default:
                break;
        }
        // One that has just ended may still be asked.
        if (channel != null) {
            channel.asked(frame);
        }
    }

    private <T extends Channel & Runnable> Channel start(int number, T channel) {
        open.put(number, channel);
        Thread thread = new Thread(channel, "gateway " + number);
        thread.setDaemon(true);
        thread.start();
        return channel;
    }

    private Turns.Opening opening(ByteBuffer payload) {
        int link = payload.getInt();
        int mode = payload.get();
        int individual = payload.getInt();
        return () -> calls.link(link).session(mode, individual);
    }
}
