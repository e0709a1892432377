/*
 * A JMS client for the cookbook: it talks to ActiveMQ with ActiveMQ's own classes, and knows nothing of the gateway.
 *
 *   java -cp '/usr/share/activemq/lib/*' Jms.java tcp://127.0.0.1:61616 COMMAND WORD...
 *
 *   send DESTINATION TEXT [NAME=VALUE...]   send a persistent TextMessage; JMSReplyTo, JMSCorrelationID, JMSType and JMSPriority
 *                                           are set as such, other names as String properties; without TEXT the text is null
 *   receive DESTINATION [COUNT]             print so many messages, with the properties of each behind it
 *   inspect DESTINATION                     print one message, a line for each header and property
 *   request DESTINATION TEXT REPLIES        send, then print the first message of REPLIES whose JMSCorrelationID is the request's id
 *   answer DESTINATION                      answer one request, at its JMSReplyTo, with its JMSCorrelationID, or if it has none its id
 *   number DESTINATION FROM TO              send numbered messages, in transactions of a hundred
 *
 * DESTINATION is queue:NAME or topic:NAME. Without a COMMAND it reads commands from the standard input, one a line, their words
 * separated by tabs, and prints an empty line after each. What does not come within 30 seconds is an error.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.Map;
import java.util.TreeMap;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.Topic;
import org.apache.activemq.ActiveMQConnectionFactory;

public class Jms {
    private static final long PATIENCE_MS = 30_000;

    private final Connection connection;

    private Jms(String url) throws JMSException {
        connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
    }

    public static void main(String[] words) throws Exception {
        if (words.length == 0) {
            System.err.println("Jms: expected the URL of an ActiveMQ, such as tcp://127.0.0.1:61616");
            System.exit(2);
        }
        int status = 0;
        Jms jms = new Jms(words[0]);
        if (words.length > 1) {
            status = jms.run(Arrays.copyOfRange(words, 1, words.length)) ? 0 : 1;
        } else {
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                jms.run(line.split("\t", -1));
                System.out.println();
                System.out.flush();
            }
        }
        jms.connection.close();
        System.exit(status);
    }

    private boolean run(String[] words) {
        try {
            switch (words[0]) {
                case "send" -> send(words);
                case "receive" -> receive(words[1], words.length > 2 ? Integer.parseInt(words[2]) : 1);
                case "inspect" -> inspect(words[1]);
                case "request" -> request(words[1], words[2], words[3]);
                case "answer" -> answer(words[1]);
                case "number" -> number(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                default -> throw new IllegalArgumentException("there is no command " + words[0]);
            }
            return true;
        } catch (JMSException | RuntimeException error) {
            System.out.println("error: " + error.getMessage());
            return false;
        }
    }

    private void send(String[] words) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        try {
            TextMessage message = session.createTextMessage(words.length > 2 ? words[2] : null);
            int priority = Message.DEFAULT_PRIORITY;
            for (String word : Arrays.copyOfRange(words, Math.min(3, words.length), words.length)) {
                String name = word.substring(0, word.indexOf('='));
                String value = word.substring(word.indexOf('=') + 1);
                switch (name) {
                    case "JMSReplyTo" -> message.setJMSReplyTo(destination(session, value));
                    case "JMSCorrelationID" -> message.setJMSCorrelationID(value);
                    case "JMSType" -> message.setJMSType(value);
                    case "JMSPriority" -> priority = Integer.parseInt(value);
                    default -> message.setStringProperty(name, value);
                }
            }
            producer(session, words[1]).send(message, DeliveryMode.PERSISTENT, priority, 0);
        } finally {
            session.close();
        }
    }

    private void receive(String name, int count) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        try {
            MessageConsumer consumer = session.createConsumer(destination(session, name));
            for (int left = count; left > 0; left--) {
                Message message = next(consumer, name);
                Map<String, Object> properties = properties(message);
                System.out.println(text(message) + (properties.isEmpty() ? "" : " " + properties));
            }
        } finally {
            session.close();
        }
    }

    private void inspect(String name) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        try {
            Message message = next(session.createConsumer(destination(session, name)), name);
            Map<String, Object> found = new TreeMap<>();
            found.put("JMSDestination", named(message.getJMSDestination()));
            found.put("JMSReplyTo", message.getJMSReplyTo() == null ? "none" : named(message.getJMSReplyTo()));
            found.put("JMSDeliveryMode", message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT ? "PERSISTENT" : "NON_PERSISTENT");
            found.put("JMSPriority", message.getJMSPriority());
            found.put("JMSExpiration", message.getJMSExpiration());
            found.put("JMSCorrelationID", message.getJMSCorrelationID());
            found.put("JMSType", message.getJMSType());
            properties(message).forEach((key, value) -> found.put(key, value + " (" + value.getClass().getSimpleName() + ")"));
            found.forEach((key, value) -> System.out.println(key + ": " + value));
            System.out.println((message instanceof TextMessage ? "text: " : "octets: ") + text(message));
        } finally {
            session.close();
        }
    }

    private void request(String name, String text, String replies) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        try {
            TextMessage request = session.createTextMessage(text);
            request.setJMSReplyTo(destination(session, replies));
            producer(session, name).send(request);
            String selector = "JMSCorrelationID = '" + request.getJMSMessageID() + "'";
            System.out.println(text(next(session.createConsumer(destination(session, replies), selector), replies)));
        } finally {
            session.close();
        }
    }

    private void answer(String name) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        try {
            Message request = next(session.createConsumer(destination(session, name)), name);
            if (request.getJMSReplyTo() == null) {
                throw new JMSException("the request '" + text(request) + "' has no JMSReplyTo");
            }
            TextMessage reply = session.createTextMessage("an answer to: " + text(request));
            String id = request.getJMSCorrelationID();
            reply.setJMSCorrelationID(id == null ? request.getJMSMessageID() : id);
            MessageProducer producer = session.createProducer(request.getJMSReplyTo());
            producer.send(reply);
            System.out.println("answered at " + named(request.getJMSReplyTo()));
        } finally {
            session.close();
        }
    }

    private void number(String name, int first, int last) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        try {
            MessageProducer producer = producer(session, name);
            for (int number = first; number <= last; number++) {
                producer.send(session.createTextMessage(String.format("number %06d.", number)));
                if (number % 100 == 0) {
                    session.commit();
                }
            }
            session.commit();
        } finally {
            session.close();
        }
    }

    private static MessageProducer producer(Session session, String name) throws JMSException {
        MessageProducer producer = session.createProducer(destination(session, name));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        return producer;
    }

    private static Message next(MessageConsumer consumer, String name) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        if (message == null) {
            throw new JMSException("nothing came from " + name + " within " + PATIENCE_MS / 1000 + " seconds");
        }
        return message;
    }

    private static Destination destination(Session session, String text) throws JMSException {
        if (text.startsWith("queue:")) {
            return session.createQueue(text.substring(6));
        }
        if (text.startsWith("topic:")) {
            return session.createTopic(text.substring(6));
        }
        throw new IllegalArgumentException("'" + text + "' is neither queue:NAME nor topic:NAME");
    }

    private static String named(Destination destination) throws JMSException {
        return destination instanceof Topic topic ? "topic:" + topic.getTopicName() : "queue:" + ((Queue) destination).getQueueName();
    }

    private static Map<String, Object> properties(Message message) throws JMSException {
        Map<String, Object> properties = new TreeMap<>();
        for (Enumeration<?> names = message.getPropertyNames(); names.hasMoreElements(); ) {
            String name = names.nextElement().toString();
            // Those that the provider sets say nothing of the message, and it makes properties of STOMP's headers, too.
            if (!name.startsWith("JMSX") && !name.contains("-")) {
                properties.put(name, message.getObjectProperty(name));
            }
        }
        return properties;
    }

    private static String text(Message message) throws JMSException {
        if (message instanceof TextMessage text) {
            return text.getText();
        }
        if (message instanceof BytesMessage octets) {
            byte[] body = new byte[(int) octets.getBodyLength()];
            octets.readBytes(body);
            return new String(body, StandardCharsets.UTF_8);
        }
        if (message instanceof MapMessage map) {
            Map<String, Object> entries = new TreeMap<>();
            for (Enumeration<?> names = map.getMapNames(); names.hasMoreElements(); ) {
                String name = names.nextElement().toString();
                entries.put(name, map.getObject(name));
            }
            return entries.toString();
        }
        return message.getClass().getInterfaces()[0].getSimpleName();
    }
}
