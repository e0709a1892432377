package stompgateway.jms;

/** What an OutOfMemoryError means: that one message asks for more than there can be, or that the heap is full and nothing goes on. */
public final class Heap {
    /** Exit status: the heap is full. The gateway says so, and starts another process that fetches less ahead. */
    static final int EXHAUSTED = 71;

    private Heap() {}

    /**
     * End the process if this was caused by a heap that is full. Where there is much room, somebody wanted an absurd amount, as a message does whose length is
     * damaged: that is the error of that message alone.
     */
    public static void check(Throwable error) {
        Throwable one = error;
        for (int depth = 0; one != null && depth < 8; depth++) {
            if (one instanceof OutOfMemoryError && full()) {
                Runtime.getRuntime().halt(EXHAUSTED);
            }
            one = one.getCause() == one ? null : one.getCause();
        }
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
