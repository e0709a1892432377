package stompgateway.jms.javax;

import java.util.LinkedHashMap;
import java.util.HashMap;
import java.util.Map;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TemporaryTopic;
import javax.jms.Topic;
import stompgateway.jms.Failure;

/** The destinations that a factory's connections use, by domain and name. Used by all of their threads. */
final class Destinations {
    /** Most destinations that are remembered because they were seen in messages. */
    private static final int MOST_SEEN = 1000;
    /** How long a sender waits for a temporary destination that another thread is to make, in milliseconds. */
    private static final long PATIENCE = 5000;

    private final Map<String, Destination> known = new HashMap<>();
    private final Map<String, String> ownNames = new HashMap<>();
    private final Map<String, Destination> seen = new LinkedHashMap<String, Destination>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Destination> eldest) {
            return size() > MOST_SEEN;
        }
    };

    /** JNDI gave it: it is what its name means from now on. */
    synchronized void remember(boolean topic, String name, Destination destination) {
        known.put(key(topic, false, name), destination);
    }

    /** A temporary destination was made, and is known by this name; null: it is gone. The one that was known by it before. */
    synchronized Destination temporary(boolean topic, String name, Destination destination) throws JMSException {
        Destination before = known.remove(key(topic, true, name));
        if (before != null) {
            ownNames.remove(key(topic, true, name(before, topic)));
        }
        if (destination != null) {
            known.put(key(topic, true, name), destination);
            ownNames.put(key(topic, true, name(destination, topic)), name);
        }
        notifyAll();
        return before;
    }

    /** The destination by this name. */
    Destination find(Session session, boolean topic, boolean temporary, String name) throws JMSException, Failure {
        String key = key(topic, temporary, name);
        synchronized (this) {
            Destination found = known.get(key);
            if (found == null && temporary) {
                found = seen.get(key);
            }
            if (found != null) {
                return found;
            }
        }
        if (temporary && ours(name)) {
            return awaited(key, name);
        }
        // Providers that give temporary destinations names of their own make one again from such a name.
        return topic ? session.createTopic(name) : session.createQueue(name);
    }

    /** Names that we gave begin so, and no provider's do. */
    private static boolean ours(String name) {
        return name.startsWith("stompgateway-");
    }

    private synchronized Destination awaited(String key, String name) throws Failure {
        long until = System.currentTimeMillis() + PATIENCE;
        try {
            while (!known.containsKey(key)) {
                long left = until - System.currentTimeMillis();
                if (left <= 0) {
                    throw new Failure(Failure.DESTINATION, "there is no temporary destination " + name, null);
                }
                wait(left);
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new Failure(Failure.OTHER, "interrupted", error);
        }
        return known.get(key);
    }

    /** How a destination in a message is known here. */
    synchronized Named named(Destination destination, boolean topicIfBoth) throws JMSException {
        boolean topic = destination instanceof Topic && (topicIfBoth || !(destination instanceof Queue));
        boolean temporary = topic ? destination instanceof TemporaryTopic : destination instanceof TemporaryQueue;
        String name = name(destination, topic);
        if (temporary) {
            String own = ownNames.get(key(topic, true, name));
            if (own != null) {
                return new Named(topic, true, own);
            }
            seen.put(key(topic, true, name), destination);
        }
        return new Named(topic, temporary, name);
    }

    static String name(Destination destination, boolean topic) throws JMSException {
        return topic ? ((Topic) destination).getTopicName() : ((Queue) destination).getQueueName();
    }

    private static String key(boolean topic, boolean temporary, String name) {
        return (topic ? "t" : "q") + (temporary ? "t" : "-") + name;
    }

    static final class Named {
        final boolean topic;
        final boolean temporary;
        final String name;

        Named(boolean topic, boolean temporary, String name) {
            this.topic = topic;
            this.temporary = temporary;
            this.name = name;
        }
    }
}
