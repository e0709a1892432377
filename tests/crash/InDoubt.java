/*
 * Asks an ActiveMQ by ActiveMQ's own classes which transaction branches are in doubt there. For each line of the standard input it prints
 * them, a line each, and an empty line.
 *
 *   java -cp '/usr/share/activemq/lib/*' InDoubt.java tcp://127.0.0.1:61616
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import javax.jms.XAConnection;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.ActiveMQXAConnectionFactory;

public class InDoubt {
    public static void main(String[] words) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            XAConnection connection = new ActiveMQXAConnectionFactory(words[0]).createXAConnection();
            connection.start();
            XAResource resource = connection.createXASession().getXAResource();
            for (Xid xid : resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {
                System.out.println(xid.getFormatId() + "." + hex(xid.getGlobalTransactionId()) + "." + hex(xid.getBranchQualifier()));
            }
            connection.close();
            System.out.println();
            System.out.flush();
        }
    }

    private static String hex(byte[] octets) {
        return java.util.HexFormat.of().formatHex(octets);
    }
}
