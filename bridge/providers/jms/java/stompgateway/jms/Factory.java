package stompgateway.jms;

/** A connection factory that JNDI gave, of either namespace. */
public interface Factory {
    /** The class of the connection factory. */
    String className();

    /** Whether it is an XAConnectionFactory. */
    boolean xa();

    /**
     * A started connection. Without a user the factory's own is taken; without a client id, the factory's, if it has one.
     * Of an XAConnectionFactory it is an XAConnection.
     */
    Link connect(String user, String password, String clientId, Lost lost) throws Failure;

    /**
     * Remember a destination that JNDI gave, so that it is used where it is named.
     *
     * @return "queue" or "topic", and its name
     */
    String[] remember(Object destination) throws Failure;
}
