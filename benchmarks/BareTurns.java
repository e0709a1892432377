// The work of BareXa.java done by the Java classes of the gateway's own JMS provider: many messages in one call.
//
// java -cp 'JARS/stomp-gateway-jms.jar:/usr/share/activemq/lib/*:.' BareTurns
//     URL QUEUE send|receive MESSAGES AT-ONCE BYTES
//
// Prints messages a second. A transaction takes two turns: one up to the vote, one for the commit; a receive that finds too few messages takes another.
// There is no pipe, no thread and no reactor between, so the difference from a link is what those cost. The layout of questions and answers is that of
// batches.py in bridge/providers/jms. Started by bare.py.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

import stompgateway.jms.Directory;
import stompgateway.jms.Link;
import stompgateway.jms.Octets;
import stompgateway.jms.Values;
import stompgateway.jms.Work;

public final class BareTurns {
    /** Digits of a message's number at the end of its body, as in wire.py. */
    private static final int DIGITS = 12;
    /** The calls of an XAResource and their flags. */
    private static final int START = 0, END = 1, PREPARE = 2, COMMIT = 3, TMNOFLAGS = 0, TMSUCCESS = 0x4000000;
    private static final int CONSUMER = 1;
    /** Turns in a row that may bring no message before one counts as missing; each waits some milliseconds. */
    private static final int MOST_EMPTY = 2_000;

    private final Work work;
    private final byte[] head;
    private final byte[] body;
    private int tags;
    /** Keys of the deliveries in the current transaction, and the number that the next one must have. */
    private final List<Long> keys = new ArrayList<>();
    private int wanted;

    private BareTurns(Work work, String queue, int length) {
        this.work = work;
        // As envelope.py has it: version, two times, two lengths, a persistent BytesMessage of priority 4; then its destination.
        Octets octets = new Octets().u8(1).i64(0).i64(0).u16(0).u16(0).u8(2).u8(2).u8(4).u8(1);
        int opened = octets.open();
        octets.u8(0).u8(0).raw(Octets.utf8(queue)).close(opened);
        head = octets.take();
        body = new byte[length];
        Arrays.fill(body, (byte) 'x');
    }

    public static void main(String[] arguments) throws Exception {
        boolean sends = arguments[2].equals("send");
        int messages = Integer.parseInt(arguments[3]), atOnce = Integer.parseInt(arguments[4]);
        String[] environment = {"java.naming.factory.initial", "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
            "java.naming.provider.url", arguments[0]};
        Link link = Directory.factory("XAConnectionFactory", environment)
                .connect(null, null, null, reason -> System.err.println("the connection is lost: " + reason));
        try {
            BareTurns turns = new BareTurns(link.session(Link.XA, 0), arguments[1], Integer.parseInt(arguments[5]));
            if (!sends) {
                turns.open(arguments[1]);
            }
            turns.run(sends, 0, messages, atOnce);
            long began = System.nanoTime();
            turns.run(sends, messages, 2 * messages, atOnce);
            System.out.println(messages / ((System.nanoTime() - began) / 1e9));
        } finally {
            link.close();
        }
    }

    /** The one place that knows how a turn is called. */
    private static byte[] called(Work work, byte[] asked) {
        try {
            return work.turn(ByteBuffer.wrap(asked), new AtomicBoolean()).take();
        } catch (Exception failed) {
            throw new IllegalStateException(failed.getMessage(), failed);
        }
    }

    /** Messages first to end - 1, atOnce in a transaction; the last has what is left. */
    private void run(boolean sends, int first, int end, int atOnce) {
        for (int begin = first; begin < end; begin += atOnce) {
            byte[] global = (ProcessHandle.current().pid() + "." + begin).getBytes(StandardCharsets.US_ASCII);
            if (sends) {
                send(global, begin, Math.min(end, begin + atOnce));
            } else {
                receive(global, begin, Math.min(end, begin + atOnce));
            }
            turn(xa(new Octets(), COMMIT, global, TMNOFLAGS));
        }
    }

    private void open(String queue) {
        Octets asked = new Octets().u8(2).u32(CONSUMER).u8(0).u8(0).u8(0).text(queue).text("").text("");
        turn(asked.u8(4).u32(CONSUMER).u8(1));
    }

    private void send(byte[] global, int first, int end) {
        Octets asked = xa(new Octets(), START, global, TMNOFLAGS);
        asked.u8(1).u32(end - first);
        int opened = asked.open();
        for (int number = first; number < end; number++) {
            for (int at = body.length - 1, left = number; at >= body.length - DIGITS; at--, left /= 10) {
                body[at] = (byte) ('0' + left % 10);
            }
            asked.u32(head.length).u32(body.length).raw(head).raw(body);
        }
        asked.close(opened);
        turn(xa(xa(asked, END, global, TMSUCCESS), PREPARE, global, TMNOFLAGS));
    }

    private void receive(byte[] global, int first, int end) {
        keys.clear();
        wanted = first;
        turn(xa(new Octets(), START, global, TMNOFLAGS).u8(3).u32(CONSUMER).i64(end - first).i64(0));
        for (int empty = 0; wanted < end;) {
            int before = wanted;
            turn(new Octets());
            empty = wanted > before ? 0 : empty + 1;
            if (empty > MOST_EMPTY) {
                throw new IllegalStateException("message " + wanted + " did not come");
            }
        }
        Octets asked = new Octets().u8(5).u32(CONSUMER).u32(keys.size());
        for (long key : keys) {
            asked.i64(key);
        }
        turn(xa(xa(asked, END, global, TMSUCCESS), PREPARE, global, TMNOFLAGS));
    }

    /** Append a call of the XAResource. */
    private Octets xa(Octets asked, int call, byte[] global, int flags) {
        asked.u8(12).u32(++tags).u8(call).u32(flags);
        return asked.u32(1).u8(global.length).raw(global).u8(1).u8(1);
    }

    /** Ask, and take the answers. */
    private void turn(Octets asked) {
        ByteBuffer in = ByteBuffer.wrap(called(work, asked.take()));
        while (in.hasRemaining()) {
            int code = in.get();
            switch (code) {
                case 1: // sent
                    for (int left = in.getInt(); left > 0; left--) {
                        in.position(in.position() + 2 + in.getShort(in.position()) + 8);
                    }
                    break;
                case 4: // message
                    arrived(in);
                    break;
                case 6: // void
                    throw new IllegalStateException("deliveries are void");
                case 7: // note
                    System.err.println(Values.text(in));
                    break;
                case 9: // xa done
                    in.getInt();
                    int how = in.get(), value = in.getInt();
                    String reason = Values.text(in);
                    if (how != 0) {
                        throw new IllegalStateException("the provider refused, with " + value + ": " + reason);
                    }
                    if (value != 0) {
                        throw new IllegalStateException("the provider's vote is " + value + "; expected XA_OK");
                    }
                    in.getInt();
                    break;
                case 5: // ended
                    in.getLong();
                    throw new IllegalStateException("the consumer has ended: " + Values.text(in));
                default: // such as dropped and unread
                    throw new IllegalStateException("the provider refused: answer " + code);
            }
        }
    }

    private void arrived(ByteBuffer in) {
        in.getInt();
        keys.add(in.getLong());
        in.getInt();
        int headLength = in.getInt(), length = in.getInt();
        in.position(in.position() + headLength);
        byte[] found = Values.some(in, length);
        String digits = new String(found, Math.max(0, length - DIGITS), Math.min(length, DIGITS), StandardCharsets.US_ASCII);
        if (length != body.length || Long.parseLong(digits) != wanted) {
            throw new IllegalStateException("message " + wanted + " of " + body.length + " bytes was expected, and " + length + " came: " + digits);
        }
        wanted++;
    }
}
