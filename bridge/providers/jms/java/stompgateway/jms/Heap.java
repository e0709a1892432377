package stompgateway.jms;

/** What an OutOfMemoryError means: that one message asks for more than there can be, or that the heap is full and nothing goes on. */
public final class Heap {
    /** Exit status: the heap is full. The gateway says so, and starts another process that fetches less ahead. */
    static final int EXHAUSTED = 71;

    /** Let go when the heap is full, so that there is room to say so. */
    private static byte[] reserve;

    private Heap() {}

    /** Bytes of the heap as an operator sets it. What can be used may be less, by what the collector keeps for itself. */
    private static long asked;

    /**
     * To be called while there is memory: a heap that is full has no room for classes, and those by which a process ends are loaded when it does.
     *
     * @param heap bytes of the heap as the command line has it
     */
    static void prepare(long heap) {
        asked = heap;
        reserve = new byte[1 << 19];
        try {
            Class.forName("java.lang.Shutdown");
        } catch (ClassNotFoundException | LinkageError error) {
            // This Java has none; it is to end by whatever it has.
            return;
        }
    }

    /** End the process as one whose heap is full. */
    static void exhausted() {
        reserve = null;
        Runtime.getRuntime().halt(EXHAUSTED);
    }

    /**
     * End the process if this was caused by a heap that is full. Where there is much room, somebody wanted an absurd amount, as a message does whose length is
     * damaged: that is the error of that message alone.
     */
    public static void check(Throwable error) {
        Throwable one = error;
        for (int depth = 0; one != null && depth < 8; depth++) {
            if (one instanceof OutOfMemoryError && full()) {
                exhausted();
            }
            one = one.getCause() == one ? null : one.getCause();
        }
    }

    /**
     * Whether the heap may be too small for a message that is as it should be, which must not be taken for one that cannot be read. Reading one takes several
     * times its size, in characters and copies. If this little of the heap is in use, message included, somebody wanted an absurd amount.
     */
    public static boolean tooSmall(Throwable error) {
        Throwable one = error;
        for (int depth = 0; one != null && depth < 8; depth++) {
            // No heap has room for that.
            if (one instanceof OutOfMemoryError && !String.valueOf(one.getMessage()).contains("exceeds VM limit")) {
                System.gc();
                return used() > largest() / 6;
            }
            one = one.getCause() == one ? null : one.getCause();
        }
        return false;
    }

    /** What there is, and what to do about it. */
    public static String remedy() {
        return "the heap is at most " + (asked >> 20) + " MiB: give it more by -Xmx in imq.jms.jvmOptions, or have the client fetch fewer messages "
                + "ahead (ActiveMQ: jms.prefetchPolicy.all=N in its URL)";
    }

    private static boolean full() {
        // What failed has left garbage behind.
        System.gc();
        return used() > largest() / 2;
    }

    static long used() {
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    public static long largest() {
        return Runtime.getRuntime().maxMemory();
    }
}
