// The XA work of a transacted link at its provider, in a plain loop: one session that sends, or receives, in transactions of two phases.
//
// java -cp '/usr/share/activemq/lib/*' BareXa.java URL QUEUE send|receive MESSAGES AT-ONCE BYTES
//
// Prints messages a second. Each transaction is start, AT-ONCE messages, end, prepare, commit; each call starts when the one before has returned. Runs
// MESSAGES once untimed, because the JVM compiles what it runs often, and then once timed. Writes and reads the bodies, which end in numbers, as those
// of wire.py do. Knows nothing of the gateway: no link can do with less. Started by bare.py.

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import javax.jms.BytesMessage;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;

import org.apache.activemq.ActiveMQXAConnectionFactory;
import org.apache.activemq.command.XATransactionId;

public final class BareXa {
    /** Digits of a message's number at the end of its body, as in wire.py. */
    private static final int DIGITS = 12;
    /** How long one message may take to arrive, in milliseconds. */
    private static final int PATIENCE = 20_000;

    private final XASession session;
    private final MessageProducer producer;
    private final MessageConsumer consumer;
    private final byte[] body;

    private BareXa(XASession session, Queue queue, boolean sends, int length) throws JMSException {
        this.session = session;
        producer = sends ? session.createProducer(queue) : null;
        consumer = sends ? null : session.createConsumer(queue);
        body = new byte[length];
        Arrays.fill(body, (byte) 'x');
    }

    public static void main(String[] arguments) throws Exception {
        int messages = Integer.parseInt(arguments[3]), atOnce = Integer.parseInt(arguments[4]);
        XAConnection connection = new ActiveMQXAConnectionFactory(arguments[0]).createXAConnection();
        try {
            connection.start();
            XASession session = connection.createXASession();
            Queue queue = session.createQueue(arguments[1]);
            BareXa loop = new BareXa(session, queue, arguments[2].equals("send"), Integer.parseInt(arguments[5]));
            loop.run(0, messages, atOnce);
            long began = System.nanoTime();
            loop.run(messages, 2 * messages, atOnce);
            System.out.println(messages / ((System.nanoTime() - began) / 1e9));
        } finally {
            connection.close();
        }
    }

    /** Messages first to end - 1, atOnce in a transaction; the last has what is left. */
    private void run(int first, int end, int atOnce) throws Exception {
        XAResource resource = session.getXAResource();
        for (int begin = first; begin < end; begin += atOnce) {
            XATransactionId xid = new XATransactionId();
            xid.setFormatId(1);
            xid.setGlobalTransactionId((ProcessHandle.current().pid() + "." + begin).getBytes(StandardCharsets.US_ASCII));
            xid.setBranchQualifier(new byte[] {1});
            resource.start(xid, XAResource.TMNOFLAGS);
            for (int number = begin; number < Math.min(end, begin + atOnce); number++) {
                if (producer != null) {
                    send(number);
                } else {
                    receive(number);
                }
            }
            resource.end(xid, XAResource.TMSUCCESS);
            int vote = resource.prepare(xid);
            if (vote != XAResource.XA_OK) {
                throw new IllegalStateException("the provider's vote on the transaction of message " + begin + " is " + vote + "; expected XA_OK");
            }
            resource.commit(xid, false);
        }
    }

    private void send(int number) throws JMSException {
        for (int at = body.length - 1, left = number; at >= body.length - DIGITS; at--, left /= 10) {
            body[at] = (byte) ('0' + left % 10);
        }
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        producer.send(message);
    }

    private void receive(int number) throws JMSException {
        Message message = consumer.receive(PATIENCE);
        if (message == null) {
            throw new IllegalStateException("message " + number + " did not come within " + PATIENCE / 1000 + " s");
        }
        BytesMessage bytes = (BytesMessage) message;
        long length = bytes.getBodyLength();
        bytes.readBytes(body);
        String digits = new String(body, body.length - DIGITS, DIGITS, StandardCharsets.US_ASCII);
        if (length != body.length || Long.parseLong(digits) != number) {
            throw new IllegalStateException("message " + number + " of " + body.length + " bytes was expected, and " + length + " came: " + digits);
        }
    }
}
