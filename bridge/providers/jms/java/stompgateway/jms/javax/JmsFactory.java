package stompgateway.jms.javax;

import javax.jms.Connection;
import javax.jms.ConnectionFactory;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Topic;
import javax.jms.XAConnectionFactory;
import stompgateway.jms.Factory;
import stompgateway.jms.Failure;
import stompgateway.jms.Link;
import stompgateway.jms.Lost;

/** A connection factory of this namespace. */
public final class JmsFactory implements Factory {
    /** A ConnectionFactory or an XAConnectionFactory; JMS does not make one of them the other. */
    private final Object factory;
    private final Destinations destinations = new Destinations();
    private final Branches branches = new Branches();

    public JmsFactory(Object found) {
        factory = found;
    }

    @Override
    public String className() {
        return factory.getClass().getName();
    }

    @Override
    public boolean xa() {
        return factory instanceof XAConnectionFactory;
    }

    private Connection create(String user, String password) throws JMSException {
        if (xa()) {
            XAConnectionFactory ours = (XAConnectionFactory) factory;
            return user == null ? ours.createXAConnection() : ours.createXAConnection(user, password);
        }
        ConnectionFactory ours = (ConnectionFactory) factory;
        return user == null ? ours.createConnection() : ours.createConnection(user, password);
    }

    @Override
    public Link connect(String user, String password, String clientId, Lost lost) throws Failure {
        Connection connection = null;
        try {
            connection = create(user, password);
            // Once it is started, some tell an identifier that they made up.
            String known = connection.getClientID();
            if (clientId != null && !clientId.equals(known)) {
                connection.setClientID(clientId);
                known = clientId;
            }
            JmsLink link = new JmsLink(connection, known, destinations, branches, lost);
            connection.setExceptionListener(link);
            connection.start();
            return link;
        } catch (JMSException | RuntimeException | LinkageError error) {
            if (connection != null) {
                try {
                    connection.close();
                } catch (JMSException | RuntimeException second) {
                    error.addSuppressed(second);
                }
            }
            Failure failure = Failures.of(error);
            throw failure.kind() == Failure.SECURITY
                    ? new Failure(Failure.NOT_AUTHENTICATED, failure.getMessage(), error)
                    : failure;
        }
    }

    @Override
    public String[] remember(Object found) throws Failure {
        if (!(found instanceof Destination)) {
            throw new Failure(Failure.NAMING, "a " + found.getClass().getName() + " was found where a Destination was expected", null);
        }
        Destination destination = (Destination) found;
        try {
            Destinations.Named named = destinations.named(destination, destination instanceof Topic);
            destinations.remember(named.topic, named.name, destination);
            return new String[] {named.topic ? "topic" : "queue", named.name};
        } catch (JMSException error) {
            throw Failures.of(error);
        }
    }
}
