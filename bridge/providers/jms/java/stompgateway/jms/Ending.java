package stompgateway.jms;

/** The end of the process, from which on no thread of Java may call Python: the interpreter is being taken down and would abort the process. */
public final class Ending {
    private static boolean begun;

    private Ending() {}

    /** Once this has returned nobody is told anything more. */
    public static synchronized void begin() {
        begun = true;
    }

    /** Tell of a loss, unless the process is ending. */
    public static synchronized void tell(Lost lost, int kind, String reason) {
        if (!begun) {
            lost.lost(kind, reason);
        }
    }
}
