// What this package uses of the JMS API (JMS 1.1; JMS 2.0 and Jakarta Messaging 3 have all of it), to compile against where no provider is
// installed. The build writes one file for each declaration, once with javax.jms and once with jakarta.jms. Nothing of it is shipped
// compiled: at run time the API comes with the provider's client jars. Declarations begin at the left margin.

public interface ConnectionFactory {
    Connection createConnection() throws JMSException;
    Connection createConnection(String userName, String password) throws JMSException;
}

public interface Connection {
    Session createSession(boolean transacted, int acknowledgeMode) throws JMSException;
    String getClientID() throws JMSException;
    void setClientID(String clientID) throws JMSException;
    ConnectionMetaData getMetaData() throws JMSException;
    void setExceptionListener(ExceptionListener listener) throws JMSException;
    void start() throws JMSException;
    void close() throws JMSException;
}

public interface XAConnectionFactory {
    XAConnection createXAConnection() throws JMSException;
    XAConnection createXAConnection(String userName, String password) throws JMSException;
}

public interface XAConnection extends Connection {
    XASession createXASession() throws JMSException;
}

public interface ConnectionMetaData {
    String getJMSProviderName() throws JMSException;
    int getJMSMajorVersion() throws JMSException;
}

public interface ExceptionListener {
    void onException(JMSException exception);
}

public interface Session {
    int AUTO_ACKNOWLEDGE = 1;
    int CLIENT_ACKNOWLEDGE = 2;
    BytesMessage createBytesMessage() throws JMSException;
    MapMessage createMapMessage() throws JMSException;
    Message createMessage() throws JMSException;
    ObjectMessage createObjectMessage() throws JMSException;
    StreamMessage createStreamMessage() throws JMSException;
    TextMessage createTextMessage() throws JMSException;
    void commit() throws JMSException;
    void rollback() throws JMSException;
    void recover() throws JMSException;
    void close() throws JMSException;
    MessageProducer createProducer(Destination destination) throws JMSException;
    MessageConsumer createConsumer(Destination destination, String selector) throws JMSException;
    MessageConsumer createConsumer(Destination destination, String selector, boolean noLocal) throws JMSException;
    Queue createQueue(String name) throws JMSException;
    Topic createTopic(String name) throws JMSException;
    TopicSubscriber createDurableSubscriber(Topic topic, String name, String selector, boolean noLocal) throws JMSException;
    QueueBrowser createBrowser(Queue queue, String selector) throws JMSException;
    TemporaryQueue createTemporaryQueue() throws JMSException;
    TemporaryTopic createTemporaryTopic() throws JMSException;
    void unsubscribe(String name) throws JMSException;
}

public interface XASession extends Session {
    javax.transaction.xa.XAResource getXAResource();
}

public interface Destination {
}

public interface Queue extends Destination {
    String getQueueName() throws JMSException;
}

public interface Topic extends Destination {
    String getTopicName() throws JMSException;
}

public interface TemporaryQueue extends Queue {
    void delete() throws JMSException;
}

public interface TemporaryTopic extends Topic {
    void delete() throws JMSException;
}

public interface MessageProducer {
    void send(Message message, int deliveryMode, int priority, long timeToLive) throws JMSException;
    /** Since JMS 2.0. */
    void setDeliveryDelay(long deliveryDelay) throws JMSException;
    void close() throws JMSException;
}

public interface MessageConsumer {
    Message receive(long timeout) throws JMSException;
    Message receiveNoWait() throws JMSException;
    void close() throws JMSException;
}

public interface TopicSubscriber extends MessageConsumer {
}

public interface QueueBrowser {
    java.util.Enumeration getEnumeration() throws JMSException;
    void close() throws JMSException;
}

public interface DeliveryMode {
    int NON_PERSISTENT = 1;
    int PERSISTENT = 2;
}

public interface Message {
    String getJMSMessageID() throws JMSException;
    void setJMSMessageID(String id) throws JMSException;
    long getJMSTimestamp() throws JMSException;
    void setJMSTimestamp(long timestamp) throws JMSException;
    String getJMSCorrelationID() throws JMSException;
    void setJMSCorrelationID(String correlationID) throws JMSException;
    Destination getJMSReplyTo() throws JMSException;
    void setJMSReplyTo(Destination replyTo) throws JMSException;
    Destination getJMSDestination() throws JMSException;
    void setJMSDestination(Destination destination) throws JMSException;
    int getJMSDeliveryMode() throws JMSException;
    void setJMSDeliveryMode(int deliveryMode) throws JMSException;
    boolean getJMSRedelivered() throws JMSException;
    String getJMSType() throws JMSException;
    void setJMSType(String type) throws JMSException;
    long getJMSExpiration() throws JMSException;
    void setJMSExpiration(long expiration) throws JMSException;
    int getJMSPriority() throws JMSException;
    void setJMSPriority(int priority) throws JMSException;
    boolean propertyExists(String name) throws JMSException;
    int getIntProperty(String name) throws JMSException;
    Object getObjectProperty(String name) throws JMSException;
    java.util.Enumeration getPropertyNames() throws JMSException;
    void setObjectProperty(String name, Object value) throws JMSException;
    void setStringProperty(String name, String value) throws JMSException;
    String getStringProperty(String name) throws JMSException;
    void clearProperties() throws JMSException;
    void clearBody() throws JMSException;
    void acknowledge() throws JMSException;
}

public interface TextMessage extends Message {
    String getText() throws JMSException;
    void setText(String text) throws JMSException;
}

public interface BytesMessage extends Message {
    long getBodyLength() throws JMSException;
    int readBytes(byte[] value) throws JMSException;
    void writeBytes(byte[] value) throws JMSException;
    void reset() throws JMSException;
}

public interface MapMessage extends Message {
    Object getObject(String name) throws JMSException;
    java.util.Enumeration getMapNames() throws JMSException;
    void setObject(String name, Object value) throws JMSException;
}

public interface StreamMessage extends Message {
    Object readObject() throws JMSException;
    void writeObject(Object value) throws JMSException;
    void reset() throws JMSException;
}

public interface ObjectMessage extends Message {
    void setObject(java.io.Serializable object) throws JMSException;
    java.io.Serializable getObject() throws JMSException;
}

public class JMSException extends Exception {
    public JMSException(String reason) { super(reason); }
    public String getErrorCode() { return null; }
    public Exception getLinkedException() { return null; }
}

public class IllegalStateException extends JMSException {
    public IllegalStateException(String reason) { super(reason); }
}

public class InvalidClientIDException extends JMSException {
    public InvalidClientIDException(String reason) { super(reason); }
}

public class InvalidDestinationException extends JMSException {
    public InvalidDestinationException(String reason) { super(reason); }
}

public class InvalidSelectorException extends JMSException {
    public InvalidSelectorException(String reason) { super(reason); }
}

public class JMSSecurityException extends JMSException {
    public JMSSecurityException(String reason) { super(reason); }
}

public class MessageEOFException extends JMSException {
    public MessageEOFException(String reason) { super(reason); }
}

public class MessageFormatException extends JMSException {
    public MessageFormatException(String reason) { super(reason); }
}

public class MessageNotWriteableException extends JMSException {
    public MessageNotWriteableException(String reason) { super(reason); }
}

public class ResourceAllocationException extends JMSException {
    public ResourceAllocationException(String reason) { super(reason); }
}

public class TransactionRolledBackException extends JMSException {
    public TransactionRolledBackException(String reason) { super(reason); }
}
