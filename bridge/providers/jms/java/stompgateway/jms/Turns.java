package stompgateway.jms;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A session's thread, as JMS wants one: it takes what was asked since its last turn, answers, and receives meanwhile. The busier it is, the more goes in one
 * turn.
 *
 * <p>Both directions are bounded by a window of bytes. Questions are taken off theirs when a turn begins with them; answers wait until the gateway has taken
 * those before.
 */
final class Turns implements Channels.Channel, Runnable {
    /** Makes the session. */
    interface Opening {
        Work open() throws Failure;
    }

    /** What was asked at one time. */
    private static final class Question {
        final byte[] octets;
        /** How much of the window it still uses. */
        final int owed;

        Question(byte[] octets, int owed) {
            this.octets = octets;
            this.owed = owed;
        }
    }

    /** About how many bytes of questions go in one turn; one question is never divided. */
    private static final int MOST_ASKED = 1 << 20;
    /** Bytes of answers that may be on their way, as in wire.py. */
    private static final int WINDOW = 1 << 20;
    /** A question is here in its parts, and as a whole, and its message is made of that: the heap holds so many times the largest. */
    private static final int SHARE = 4;
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    private final int number;
    private final Wire wire;
    private final Opening opening;
    private final Runnable over;
    private final AtomicBoolean wake = new AtomicBoolean();
    private final ArrayDeque<Question> asked = new ArrayDeque<>();
    /** Of a question that is not complete. */
    private final List<byte[]> parts = new ArrayList<>();
    private int together;
    /** Why nothing more is done. */
    private volatile Failure refusal;
    private int window = WINDOW;
    /** Bytes of questions that were taken and not told of. */
    private int untold;
    private boolean ending;
    private boolean abandoned;

    Turns(int number, Wire wire, Opening opening, Runnable over) {
        this.number = number;
        this.wire = wire;
        this.opening = opening;
        this.over = over;
    }

    @Override
    public void asked(Wire.Frame frame) throws IOException {
        switch (frame.type) {
            case Wire.PART:
                add(frame.payload.array());
                // It must be here whole in any case; what is complete waits for its turn.
                wire.write(Wire.TAKEN, number, frame.payload.remaining());
                break;
            case Wire.ASK:
                byte[] last = frame.payload.array();
                add(last);
                if (refusal == null) {
                    ask(new Question(parts.size() == 1 ? last : joined(), last.length));
                }
                parts.clear();
                together = 0;
                break;
            case Wire.WINDOW:
                widen(frame.payload.getInt());
                break;
            default:
                throw new IOException("frame " + frame.type + " is unknown");
        }
    }

    /** A question that the heap cannot hold ends its session; if it were the heap that ended, all others would, too. */
    private void add(byte[] part) {
        together += part.length;
        if (together > Heap.largest() / SHARE) {
            parts.clear();
            refuse(new Failure(Failure.UNAVAILABLE, "a message of more than " + (Heap.largest() / SHARE >> 20) + " MiB is too large for Java; " + Heap.remedy(), null));
        } else {
            parts.add(part);
        }
    }

    private synchronized void refuse(Failure reason) {
        refusal = reason;
        wake.set(true);
        notifyAll();
    }

    private byte[] joined() {
        ByteBuffer whole = ByteBuffer.allocate(together);
        for (byte[] part : parts) {
            whole.put(part);
        }
        return whole.array();
    }

    private synchronized void ask(Question whole) {
        asked.add(whole);
        wake.set(true);
        notifyAll();
    }

    private synchronized void widen(int octets) {
        window += octets;
        notifyAll();
    }

    @Override
    public synchronized void end() {
        ending = true;
        wake.set(true);
        notifyAll();
    }

    @Override
    public synchronized void abandon() {
        abandoned = true;
        end();
    }

    @Override
    public void run() {
        try {
            try {
                turns(opening.open());
            } catch (IOException | InterruptedException error) {
                throw error;
            } catch (Throwable error) {
                Heap.check(error);
                Failure known = Failure.of(error);
                wire.write(Wire.BROKE, number, new Octets().u32(known.kind()).text(known.brief()));
            }
            over.run();
            wire.write(Wire.ENDED, number, new Octets());
        } catch (InterruptedException | IOException error) {
            // By the reading thread the whole process ends where the gateway is gone.
            Thread.currentThread().interrupt();
        }
    }

    private void turns(Work work) throws IOException, InterruptedException, Failure {
        try {
            turnByTurn(work);
        } finally {
            work.over();
        }
    }

    private void turnByTurn(Work work) throws IOException, InterruptedException, Failure {
        boolean idle = true;
        while (true) {
            ArrayDeque<Question> taken;
            boolean last;
            synchronized (this) {
                while (idle && asked.isEmpty() && !ending && refusal == null) {
                    wait();
                }
                if (refusal != null) {
                    throw refusal;
                }
                if (abandoned) {
                    return;
                }
                taken = take();
                wake.set(!asked.isEmpty());
                last = ending;
            }
            int count = taken.size();
            if (count == 0 && last) {
                return;
            }
            Octets answers = work.turn(questions(taken), wake);
            if (count > 0 || answers.size() > 0) {
                answer(answers, count);
            }
            // With nothing asked and nothing come there is nobody to receive for, or somebody has something to ask.
            idle = !last && (!work.listens() || count == 0 && answers.size() == 0);
        }
    }

    /** What was asked, up to about the most that goes in one turn. */
    private ArrayDeque<Question> take() {
        ArrayDeque<Question> taken = new ArrayDeque<>();
        int octets = 0;
        while (!asked.isEmpty() && (taken.isEmpty() || octets + asked.peek().octets.length <= MOST_ASKED)) {
            octets += asked.peek().octets.length;
            taken.add(asked.poll());
        }
        return taken;
    }

    /** Their octets, which use the window no more. */
    private ByteBuffer questions(ArrayDeque<Question> taken) throws IOException {
        if (taken.isEmpty()) {
            return NOTHING;
        }
        int owed = 0;
        Octets all = new Octets();
        for (Question one : taken) {
            owed += one.owed;
            if (taken.size() > 1) {
                all.raw(one.octets);
            }
        }
        // Not for each small question: the gateway would be woken for that alone, while it waits for the answer.
        untold += owed;
        if (untold >= WINDOW / 4) {
            wire.write(Wire.TAKEN, number, untold);
            untold = 0;
        }
        return ByteBuffer.wrap(taken.size() > 1 ? all.take() : taken.peek().octets);
    }

    private void answer(Octets answers, int count) throws IOException, InterruptedException {
        int from = 0;
        int most = Wire.LONGEST_PAYLOAD - 4;
        while (answers.size() - from > most) {
            if (!await(most)) {
                return;
            }
            wire.write(Wire.PIECE, number, 0, 0, answers, from, from + most);
            from += most;
        }
        if (await(answers.size() - from)) {
            wire.write(Wire.ANSWER, number, 4, count, answers, from, answers.size());
        }
    }

    /** Wait for room. @return whether the gateway still waits for this */
    private synchronized boolean await(int octets) throws InterruptedException {
        while (window <= 0 && !abandoned && refusal == null) {
            wait();
        }
        window -= octets;
        return !abandoned && refusal == null;
    }
}
