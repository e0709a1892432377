// What a JMS provider takes and gives by itself: one client that sends persistent messages, or receives them, so many at once.
//
// java -cp '/usr/share/activemq/lib/*' JmsRate.java URL QUEUE send|receive MESSAGES AT-ONCE OCTETS
//
// Sends each message by itself, or so many in a local transaction; receives with CLIENT_ACKNOWLEDGE, and acknowledges so many at once. A fifth of
// the messages more come before those that are timed. Prints messages a second.

import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnectionFactory;

public final class JmsRate {
    public static void main(String[] arguments) throws Exception {
        int messages = Integer.parseInt(arguments[3]), atOnce = Integer.parseInt(arguments[4]);
        int before = (messages / 5 + atOnce - 1) / atOnce * atOnce;
        Connection connection = new ActiveMQConnectionFactory(arguments[0]).createConnection();
        connection.start();
        boolean sends = arguments[2].equals("send"), transacted = sends && atOnce > 1;
        int mode = transacted ? Session.SESSION_TRANSACTED : sends ? Session.AUTO_ACKNOWLEDGE : Session.CLIENT_ACKNOWLEDGE;
        Session session = connection.createSession(transacted, mode);
        Queue queue = session.createQueue(arguments[1]);
        byte[] body = new byte[Integer.parseInt(arguments[5])];
        MessageProducer producer = sends ? session.createProducer(queue) : null;
        MessageConsumer consumer = sends ? null : session.createConsumer(queue);
        run(session, producer, consumer, before, atOnce, body);
        long began = System.nanoTime();
        run(session, producer, consumer, messages, atOnce, body);
        System.out.println(messages / ((System.nanoTime() - began) / 1e9));
        connection.close();
    }

    private static void run(Session session, MessageProducer producer, MessageConsumer consumer, int messages, int atOnce, byte[] body)
            throws JMSException {
        for (int count = 1; count <= messages; count++) {
            boolean last = count % atOnce == 0 || count == messages;
            if (producer != null) {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(body);
                producer.send(message);
                if (last && session.getTransacted()) {
                    session.commit();
                }
            } else {
                Message message = consumer.receive(20_000);
                if (message == null) {
                    throw new JMSException("message " + count + " did not come within 20 s");
                }
                if (last) {
                    message.acknowledge();
                }
            }
        }
    }
}
