// ActiveMQ with its own JMS bridge, which is started and stopped while the broker runs.
//
// java -cp '/usr/share/activemq/lib/*' JmsBridge.java CONTROL-PORT BROKER-URI
//
// On the control port of the loopback it takes one line a connection and answers "done", or what went wrong:
//     out SOURCE TARGET URL      move from the queue SOURCE here to the queue TARGET there
//     in SOURCE TARGET URL       move from the queue SOURCE there to the queue TARGET here
//     stop

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.network.jms.InboundQueueBridge;
import org.apache.activemq.network.jms.JmsConnector;
import org.apache.activemq.network.jms.OutboundQueueBridge;
import org.apache.activemq.network.jms.SimpleJmsQueueConnector;

public final class JmsBridge {
    private static JmsConnector running;

    public static void main(String[] arguments) throws Exception {
        BrokerService broker = BrokerFactory.createBroker(arguments[1]);
        broker.start();
        broker.waitUntilStarted();
        try (ServerSocket control = new ServerSocket(Integer.parseInt(arguments[0]), 1, InetAddress.getLoopbackAddress())) {
            while (true) {
                try (Socket socket = control.accept()) {
                    BufferedReader lines = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
                    String answer;
                    try {
                        obey(broker, lines.readLine().split(" "));
                        answer = "done";
                    } catch (Exception error) {
                        answer = error.toString();
                    }
                    socket.getOutputStream().write(answer.getBytes(StandardCharsets.UTF_8));
                }
            }
        }
    }

    private static void obey(BrokerService broker, String[] words) throws Exception {
        if (words[0].equals("stop")) {
            if (running != null) {
                broker.removeJmsConnector(running);
                running.stop();
                running = null;
            }
            return;
        }
        SimpleJmsQueueConnector connector = new SimpleJmsQueueConnector();
        connector.setName("bench");
        connector.setOutboundQueueConnectionFactory(new ActiveMQConnectionFactory(words[3]));
        if (words[0].equals("out")) {
            OutboundQueueBridge bridge = new OutboundQueueBridge(words[2]);
            bridge.setLocalQueueName(words[1]);
            connector.setOutboundQueueBridges(new OutboundQueueBridge[] {bridge});
        } else {
            InboundQueueBridge bridge = new InboundQueueBridge(words[1]);
            bridge.setLocalQueueName(words[2]);
            connector.setInboundQueueBridges(new InboundQueueBridge[] {bridge});
        }
        // Gives it the way to this broker within the JVM.
        broker.addJmsConnector(connector);
        running = connector;
        connector.start();
    }
}
