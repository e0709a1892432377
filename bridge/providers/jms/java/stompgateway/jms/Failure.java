package stompgateway.jms;

/** What went wrong in a call, in words and kinds that need no class of the JMS API. The kinds are those of failures.py. */
public final class Failure extends Exception {
    public static final int OTHER = 0;
    public static final int UNAVAILABLE = 1;
    public static final int SECURITY = 2;
    public static final int CLIENT_ID = 3;
    public static final int DESTINATION = 4;
    public static final int SELECTOR = 5;
    public static final int RESOURCE = 6;
    public static final int MESSAGE = 7;
    public static final int ROLLED_BACK = 8;
    public static final int STATE = 9;
    public static final int NAMING = 10;
    public static final int MISSING = 11;
    public static final int OUTCOME_UNKNOWN = 12;
    public static final int NOT_AUTHENTICATED = 13;

    private static final int LONGEST = 16_384;
    private static final long serialVersionUID = 1;
    private final int kind;

    public Failure(int kind, String reason, Throwable cause) {
        super(reason, cause);
        this.kind = kind;
    }

    public int kind() {
        return kind;
    }

    /** An error that is none of the JMS API's. */
    static Failure of(Throwable error) {
        if (error instanceof Failure) {
            return (Failure) error;
        }
        return error instanceof LinkageError ? missing(error) : new Failure(OTHER, told(error), error);
    }

    /** Its message, no longer than goes into a frame. */
    String brief() {
        return brief(getMessage());
    }

    public static String brief(String text) {
        return text == null ? "" : text.length() <= LONGEST ? text : text.substring(0, LONGEST) + " ...";
    }

    /** The class and message of an exception and of what caused it, in one line. */
    public static String told(Throwable error) {
        StringBuilder text = new StringBuilder();
        Throwable one = error;
        for (int depth = 0; one != null && depth < 5; depth++) {
            if (depth > 0) {
                text.append("; caused by ");
            }
            text.append(one.getClass().getName());
            if (one.getMessage() != null) {
                text.append(": ").append(one.getMessage());
            }
            if (one instanceof OutOfMemoryError) {
                text.append(" (").append(Heap.remedy()).append(")");
            }
            one = one.getCause() == one ? null : one.getCause();
        }
        return text.toString();
    }

    /** A class that is not on the class path, or only in part. */
    static Failure missing(Throwable error) {
        return new Failure(MISSING, "a class is missing on the class path: " + told(error), error);
    }
}
