package com.sun.messaging.bridge.api;

import java.util.Properties;
import javax.jms.Destination;
import javax.jms.Message;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.Topic;
import stompgateway.jms.Transforming;

/**
 * What users of Open MQ extend to change the messages of a bridge: the same names, so that a class which was compiled for Open MQ runs as it is. The build
 * makes it for both packages that it has had, and for both namespaces of the JMS API.
 *
 * <p>One object for each link; it has a public constructor without arguments, and is called by one thread at a time.
 */
public abstract class MessageTransformer<T, S> implements Transforming<T, S> {
    public static final String SUN_MQ = "SUN_MQ";
    public static final String STOMP = "STOMP";

    public enum JMSMessageType {
        MESSAGE, TEXTMESSAGE, BYTESMESSAGE, MAPMESSAGE, STREAMMESSAGE, OBJECTMESSAGE
    }

    private Session session;
    private String bridge;
    private Object elsewhere;
    private boolean dropped;

    /** Called by the bridge before each message, and with null after it. */
    @Override
    public final void init(Object obj, String bridgeType) {
        session = (Session) obj;
        bridge = bridgeType;
        elsewhere = null;
        dropped = false;
    }

    /** What {@link #branchTo} was given for this message, or null. */
    @Override
    public final Object getBranchTo() {
        return elsewhere;
    }

    /** Whether {@link #noTransfer} was called for it. */
    @Override
    public final boolean isNoTransfer() {
        return dropped;
    }

    /** A new message, to be written. */
    protected final Message createJMSMessage(JMSMessageType type) throws Exception {
        Session open = open();
        if (type == JMSMessageType.TEXTMESSAGE) {
            return open.createTextMessage();
        }
        if (type == JMSMessageType.BYTESMESSAGE) {
            return open.createBytesMessage();
        }
        if (type == JMSMessageType.MAPMESSAGE) {
            return open.createMapMessage();
        }
        if (type == JMSMessageType.STREAMMESSAGE) {
            return open.createStreamMessage();
        }
        if (type == JMSMessageType.OBJECTMESSAGE) {
            return open.createObjectMessage();
        }
        if (type == JMSMessageType.MESSAGE) {
            return open.createMessage();
        }
        throw new IllegalArgumentException(type + " is no type of message");
    }

    /** The queue of that name at the target. */
    protected final Queue createQueue(String queueName) throws Exception {
        return open().createQueue(queueName);
    }

    /** The topic of that name at the target. */
    protected final Topic createTopic(String topicName) throws Exception {
        return open().createTopic(topicName);
    }

    /**
     * Send this message elsewhere at the target.
     *
     * @param d a destination, or as a String the ref-name of one in the bridge's file
     */
    protected final void branchTo(Object d) throws Exception {
        ofJms("branchTo");
        if (!(d instanceof String) && !(d instanceof Destination)) {
            throw new IllegalArgumentException("branchTo takes a Destination or the ref-name of one, not "
                    + (d == null ? "null" : "a " + d.getClass().getName()));
        }
        elsewhere = d;
    }

    /** Consume this message, and send it nowhere. {@link #transform} must return a message anyway. */
    protected final void noTransfer() throws Exception {
        ofJms("noTransfer");
        dropped = true;
    }

    private Session open() {
        if (session == null) {
            throw new IllegalStateException("no message is being transformed now: this is for transform() to call");
        }
        return session;
    }

    private void ofJms(String called) {
        open();
        if (!"JMS".equals(bridge)) {
            throw new UnsupportedOperationException(called + "() is for bridges of type JMS, not " + bridge);
        }
    }

    /**
     * Give the message to use in place of this one; it may be the same.
     *
     * @param message that came
     * @param readOnly whether it must be cleared before it is changed
     * @param charsetName null on a link
     * @param source what the provider calls itself that it comes from
     * @param target likewise the one that it goes to
     * @param properties those of the link's target, and the name of the bridge
     * @return null is a failure, as is an exception
     */
    @Override
    public abstract T transform(S message, boolean readOnly, String charsetName, String source, String target, Properties properties) throws Exception;
}
