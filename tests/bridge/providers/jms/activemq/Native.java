import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.List;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.util.ByteSequence;

/** Does with ActiveMQ's own client what no user of the gateway can: URL, what to do, and what that needs. */
public final class Native {
    /** Bytes that no body has: as a number it is of more bytes than follow, as a type it is none, and it is not compressed. */
    private static final byte[] DAMAGED = {0x7f, -1, -1, -16, -103, ' ', 'n', 'o', ' ', 'b', 'o', 'd', 'y'};

    private Native() {}

    public static void main(String[] arguments) throws Exception {
        Lines.serve(Native::answer);
    }

    private static List<String> answer(List<String> question) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(question.get(0)).createConnection();
        connection.start();
        try {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            switch (question.get(1)) {
                case "send":
                    return send(session, question.get(2), question.get(3), question.subList(4, question.size()));
                case "types":
                    return types(session, session.createQueue(question.get(2)));
                case "pass":
                    return pass(session, session.createQueue(question.get(2)), question.get(3));
                default:
                    throw new IllegalArgumentException(question.get(1));
            }
        } finally {
            connection.close();
        }
    }

    /** Send messages of these bodies, or damaged ones. @return their ids */
    private static List<String> send(Session session, String kind, String name, List<String> bodies) throws Exception {
        MessageProducer producer = session.createProducer(kind.equals("topic") ? session.createTopic(name) : session.createQueue(name));
        List<String> ids = new ArrayList<>();
        for (String body : bodies) {
            Message message = message(session, body);
            producer.send(message);
            ids.add(message.getJMSMessageID());
        }
        return ids;
    }

    private static Message message(Session session, String body) throws Exception {
        switch (body) {
            case "map":
                return damaged(session.createMapMessage(), false);
            case "stream":
                return damaged(session.createStreamMessage(), false);
            case "object":
                return damaged(session.createObjectMessage(), true);
            case "text":
                return damaged(session.createTextMessage(), true);
            case "properties":
                ActiveMQMessage message = common(session.createTextMessage());
                message.clearProperties();
                message.setMarshalledProperties(new ByteSequence(DAMAGED));
                return message;
            default:
                return session.createTextMessage(body);
        }
    }

    private static Message damaged(Message message, boolean compressed) throws Exception {
        ActiveMQMessage made = common(message);
        made.setContent(new ByteSequence(DAMAGED));
        made.setCompressed(compressed);
        return made;
    }

    private static ActiveMQMessage common(Message message) throws Exception {
        message.setStringProperty("colour", "red");
        message.setJMSCorrelationID("c-1");
        return (ActiveMQMessage) message;
    }

    /** Receive a message. @return the names of its properties and the classes of their values in turn */
    private static List<String> types(Session session, Queue queue) throws Exception {
        Message message = session.createConsumer(queue).receive(5000);
        List<String> types = new ArrayList<>();
        Enumeration<?> names = message.getPropertyNames();
        while (names.hasMoreElements()) {
            String name = (String) names.nextElement();
            Object value = message.getObjectProperty(name);
            types.addAll(Arrays.asList(name, value == null ? "null" : value.getClass().getSimpleName()));
        }
        return types;
    }

    /** Send a text and receive it. @return it as the body and as a property */
    private static List<String> pass(Session session, Queue queue, String text) throws Exception {
        TextMessage message = session.createTextMessage(text);
        message.setStringProperty("p", text);
        session.createProducer(queue).send(message);
        TextMessage back = (TextMessage) session.createConsumer(queue).receive(5000);
        return Arrays.asList(back.getText(), back.getStringProperty("p"));
    }
}
