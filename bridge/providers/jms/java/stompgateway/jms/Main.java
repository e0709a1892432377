package stompgateway.jms;

import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Scanner;

/**
 * The Java process of the gateway's JMS providers. Its standard input is a socket, by which the gateway asks and is answered; what anybody prints goes to the
 * gateway's log. It ends when the gateway ends or closes that socket, whatever threads are in whatever calls.
 */
public final class Main {
    /** Exit status: the gateway has closed its socket, or has ended. */
    static final int CLOSED = 0;
    /** Exit status: what came by the socket is not understood, or it is broken. */
    static final int BROKEN = 70;

    private Main() {}

    /** @param arguments the bytes of the heap */
    public static void main(String[] arguments) {
        Heap.prepare(Long.parseLong(arguments[0]));
        // The same socket in both directions. No client can read what is ours.
        InputStream in = new BufferedInputStream(new FileInputStream(FileDescriptor.in), 1 << 16);
        Wire wire = new Wire(in, new FileOutputStream(FileDescriptor.in));
        System.setIn(new ByteArrayInputStream(new byte[0]));
        // Some clients print there as if nobody else did.
        System.setOut(System.err);
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            Heap.check(error);
            System.err.println("thread " + thread.getName() + " ended with " + Failure.told(error));
        });
        int status = CLOSED;
        try {
            new Channels(wire, madeOf()).serve();
        } catch (IOException | RuntimeException error) {
            status = BROKEN;
            System.err.println("the connection to the gateway broke: " + Failure.told(error));
        } catch (OutOfMemoryError error) {
            // Who reads here serves all, so this is the end of all.
            Heap.check(error);
            status = BROKEN;
            System.err.println(Failure.told(error));
        } finally {
            Runtime.getRuntime().halt(status);
        }
    }

    /** The digest of the sources that these classes were made of. */
    private static String madeOf() throws IOException {
        InputStream found = Main.class.getResourceAsStream("/META-INF/made-of");
        if (found == null) {
            throw new IOException("the jar of the gateway's classes has no META-INF/made-of");
        }
        try (Scanner lines = new Scanner(found, "UTF-8")) {
            return lines.nextLine();
        }
    }
}
