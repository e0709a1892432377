package stompgateway.jms;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;

/**
 * Frames between this process and the gateway, in the layout of wire.py: u32 length of what follows, u8 type, u32 channel, payload. A turn's questions and
 * answers may be longer than a frame; they come in parts.
 *
 * <p>Reading belongs to one thread; any thread writes.
 */
final class Wire {
    static final int VERSION = 1;
    /** The longest that may follow a length. */
    static final int LONGEST = 256 << 10;
    /** Type and channel. */
    private static final int PREFIX = 5;
    static final int LONGEST_PAYLOAD = LONGEST - PREFIX;

    // From the gateway.
    static final int HELLO = 1;
    static final int CALL = 2;
    static final int OPEN = 3;
    static final int PART = 4;
    static final int ASK = 5;
    static final int WINDOW = 6;
    static final int END = 7;
    static final int ABANDON = 8;
    static final int BEAT = 9;

    // To the gateway.
    static final int READY = 65;
    static final int RESULT = 66;
    static final int FAILURE = 67;
    static final int PIECE = 68;
    static final int ANSWER = 69;
    static final int TAKEN = 70;
    static final int ENDED = 71;
    static final int BROKE = 72;
    static final int LOST = 73;
    static final int ALIVE = 74;

    /** A frame that was read. */
    static final class Frame {
        final int type;
        final int channel;
        final ByteBuffer payload;

        Frame(int type, int channel, byte[] payload) {
            this.type = type;
            this.channel = channel;
            this.payload = ByteBuffer.wrap(payload);
        }
    }

    private final DataInputStream in;
    private final OutputStream out;
    private final byte[] outgoing = new byte[4 + LONGEST];

    Wire(InputStream in, OutputStream out) {
        this.in = new DataInputStream(in);
        this.out = out;
    }

    /** The next frame, or null: the gateway has ended. */
    Frame read() throws IOException {
        int length;
        try {
            length = in.readInt();
        } catch (EOFException error) {
            return null;
        }
        if (length < PREFIX || length > LONGEST) {
            throw new IOException("a frame of " + length + " bytes: expected " + PREFIX + " to " + LONGEST);
        }
        int type = in.readUnsignedByte();
        int channel = in.readInt();
        byte[] payload = new byte[length - PREFIX];
        in.readFully(payload);
        return new Frame(type, channel, payload);
    }

    void write(int type, int channel, Octets payload) throws IOException {
        write(type, channel, 0, 0, payload, 0, payload.size());
    }

    void write(int type, int channel, int number) throws IOException {
        write(type, channel, 4, number, null, 0, 0);
    }

    /** @param lead 4 to write {@code number} before the payload, else 0 */
    synchronized void write(int type, int channel, int lead, int number, Octets payload, int from, int to) throws IOException {
        int length = PREFIX + lead + to - from;
        ByteBuffer head = ByteBuffer.wrap(outgoing).putInt(length).put((byte) type).putInt(channel);
        if (lead > 0) {
            head.putInt(number);
        }
        if (to > from) {
            payload.copy(from, to, outgoing, head.position());
        }
        out.write(outgoing, 0, 4 + length);
    }
}
