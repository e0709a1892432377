package stompgateway.jms.javax;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.jms.Connection;
import javax.jms.ConnectionMetaData;
import javax.jms.Destination;
import javax.jms.ExceptionListener;
import javax.jms.JMSException;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TemporaryTopic;
import javax.jms.XAConnection;
import javax.jms.XASession;
import stompgateway.jms.Failure;
import stompgateway.jms.Heap;
import stompgateway.jms.Link;
import stompgateway.jms.Lost;
import stompgateway.jms.Notes;
import stompgateway.jms.Work;

/** A connection of this namespace. Its temporary destinations and unsubscribing have a session of their own. */
final class JmsLink implements Link, ExceptionListener {
    private static final long PATIENCE = 5000;
    final Connection connection;
    final Destinations destinations;
    final Branches branches;
    final Vendor vendor;
    final Notes notes = new Notes();
    private final Lost lost;
    private final AtomicBoolean told = new AtomicBoolean();
    private final List<Object[]> temporaries = new ArrayList<>();
    private final String clientId;
    private final String product;
    private final boolean plain;
    private final boolean delays;
    private final Set<String> durables = new HashSet<>();
    private Session control;

    JmsLink(Connection connection, String clientId, Destinations destinations, Branches branches, Lost lost)
            throws JMSException {
        this.connection = connection;
        this.clientId = clientId;
        this.destinations = destinations;
        this.branches = branches;
        this.lost = lost;
        vendor = new Vendor(connection);
        product = product(connection);
        plain = plain(connection);
        delays = delays(connection);
    }

    @Override
    public void onException(JMSException exception) {
        Heap.check(exception);
        if (told.compareAndSet(false, true)) {
            lost.lost(Failures.of(exception).getMessage());
        }
    }

    @Override
    public String clientId() {
        return clientId;
    }

    @Override
    public String product() {
        return product;
    }

    private static String product(Connection connection) {
        try {
            ConnectionMetaData told = connection.getMetaData();
            String name = told == null ? null : told.getJMSProviderName();
            return name == null ? "" : name.trim();
        } catch (JMSException | RuntimeException error) {
            // A connection without a name is as good; one that is broken shows it in other ways.
            return "";
        }
    }

    private static boolean delays(Connection connection) {
        try {
            ConnectionMetaData told = connection.getMetaData();
            return told != null && told.getJMSMajorVersion() >= 2;
        } catch (JMSException | RuntimeException error) {
            // What it does not say is not relied on.
            return false;
        }
    }

    /** Some have nothing but sessions for XA, whichever they are asked for. */
    private static boolean plain(Connection connection) throws JMSException {
        if (!(connection instanceof XAConnection)) {
            return true;
        }
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        session.close();
        return !(session instanceof XASession);
    }

    @Override
    public boolean delays() {
        return delays;
    }

    @Override
    public boolean xa() {
        return connection instanceof XAConnection;
    }

    @Override
    public boolean plain() {
        return plain;
    }

    @Override
    public Work session(int mode, int individual) throws Failure {
        if (mode == XA) {
            try {
                return new XaWork(this, newXaSession(), individual);
            } catch (JMSException | RuntimeException | LinkageError error) {
                throw Failures.of(error);
            }
        }
        if (mode == TRANSFORMER) {
            try {
                return new TransformerWork(this, plain ? connection.createSession(false, Session.AUTO_ACKNOWLEDGE) : newXaSession());
            } catch (JMSException | RuntimeException | LinkageError error) {
                throw Failures.of(error);
            }
        }
        return new JmsWork(this, mode, individual);
    }

    XASession newXaSession() throws JMSException {
        return ((XAConnection) connection).createXASession();
    }

    /** A durable subscription is about to have a subscriber. One that another session is closing now is waited for. */
    void subscribing(String durable) throws Failure {
        long until = System.currentTimeMillis() + PATIENCE;
        synchronized (durables) {
            try {
                for (long left = PATIENCE; durables.contains(durable) && left > 0; left = until - System.currentTimeMillis()) {
                    durables.wait(left);
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new Failure(Failure.OTHER, "interrupted", error);
            }
            durables.add(durable);
        }
    }

    /** It has a subscriber no more, or could not have one. */
    void subscribed(String durable) {
        synchronized (durables) {
            durables.remove(durable);
            durables.notifyAll();
        }
    }

    private Session control() throws JMSException {
        if (control == null) {
            control = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        }
        return control;
    }

    @Override
    public void temporary(boolean topic, String name) throws Failure {
        try {
            Destination made = topic ? control().createTemporaryTopic() : control().createTemporaryQueue();
            destinations.temporary(topic, name, made);
            temporaries.add(new Object[] {topic, name});
        } catch (JMSException | RuntimeException error) {
            throw Failures.of(error);
        }
    }

    @Override
    public void dropTemporary(boolean topic, String name) throws Failure {
        try {
            Destination gone = destinations.temporary(topic, name, null);
            temporaries.removeIf(one -> one[0].equals(topic) && one[1].equals(name));
            if (topic && gone instanceof TemporaryTopic) {
                ((TemporaryTopic) gone).delete();
            } else if (gone instanceof TemporaryQueue) {
                ((TemporaryQueue) gone).delete();
            }
        } catch (JMSException | RuntimeException error) {
            throw Failures.of(error);
        }
    }

    @Override
    public void unsubscribe(String name) throws Failure {
        subscribing(name);
        try {
            control().unsubscribe(name);
        } catch (JMSException | RuntimeException error) {
            throw Failures.of(error);
        } finally {
            subscribed(name);
        }
    }

    @Override
    public void close() throws Failure {
        told.set(true);
        try {
            for (Object[] one : temporaries) {
                destinations.temporary((Boolean) one[0], (String) one[1], null);
            }
            temporaries.clear();
            connection.close();
        } catch (JMSException | RuntimeException error) {
            throw Failures.of(error);
        }
    }
}
