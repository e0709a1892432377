package stompgateway.jms;

/** A connection. All but close belongs to one thread. */
public interface Link {
    /** How a session's deliveries are settled where it is not transacted: all that its consumer has, or each for itself. */
    int TRANSACTED = 0;
    int BATCH = 1;
    int ONE_BY_ONE = 2;
    int INDIVIDUAL = 3;
    /** With the branches of XA transactions that the session is told of. */
    int XA = 4;
    /** Neither sends nor receives, but has a message transformer. */
    int TRANSFORMER = 5;

    /** The client identifier, or null. */
    String clientId();

    /** What the provider calls itself; "" if it does not say. */
    String product();

    /** Whether it can have a message delivered later: since JMS 2.0. */
    boolean delays();

    /** Whether it has sessions of mode XA. */
    boolean xa();

    /** Whether it has sessions of the other modes. */
    boolean plain();

    /**
     * A session; what is asked of it belongs to one thread.
     *
     * @param mode TRANSACTED; BATCH: all that was received is settled together before more is; ONE_BY_ONE: the same with batches of one;
     *     INDIVIDUAL; XA; or TRANSFORMER
     * @param individual the provider's acknowledge mode for INDIVIDUAL; for XA a number that no other session has
     */
    Work session(int mode, int individual) throws Failure;

    /** A temporary destination, from now on known by this name to all connections of the factory. */
    void temporary(boolean topic, String name) throws Failure;

    /** A temporary destination of this connection goes before the connection does. It has no consumers. */
    void dropTemporary(boolean topic, String name) throws Failure;

    void unsubscribe(String name) throws Failure;

    /** Close sessions and connection; may be called while other threads are in calls. */
    void close() throws Failure;
}
