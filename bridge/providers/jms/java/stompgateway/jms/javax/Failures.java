package stompgateway.jms.javax;

import java.io.IOException;
import javax.jms.IllegalStateException;
import javax.jms.InvalidClientIDException;
import javax.jms.InvalidDestinationException;
import javax.jms.InvalidSelectorException;
import javax.jms.JMSException;
import javax.jms.JMSSecurityException;
import javax.jms.MessageFormatException;
import javax.jms.ResourceAllocationException;
import javax.jms.TransactionRolledBackException;
import stompgateway.jms.Failure;

/** Exceptions of the JMS API as {@link Failure}. */
final class Failures {
    private Failures() {}

    static Failure of(Throwable error) {
        return error instanceof Failure ? (Failure) error : new Failure(kind(error), told(error), error);
    }

    private static int kind(Throwable error) {
        if (error instanceof LinkageError) {
            return Failure.MISSING;
        }
        if (error instanceof JMSSecurityException) {
            return Failure.SECURITY;
        }
        if (error instanceof InvalidClientIDException) {
            return Failure.CLIENT_ID;
        }
        if (error instanceof InvalidDestinationException) {
            return Failure.DESTINATION;
        }
        if (error instanceof InvalidSelectorException) {
            return Failure.SELECTOR;
        }
        if (error instanceof ResourceAllocationException) {
            return Failure.RESOURCE;
        }
        if (error instanceof MessageFormatException) {
            return Failure.MESSAGE;
        }
        if (error instanceof TransactionRolledBackException) {
            return Failure.ROLLED_BACK;
        }
        Throwable one = error;
        for (int depth = 0; one != null && depth < 8; depth++) {
            if (one instanceof SecurityException) {
                return Failure.SECURITY;
            }
            // Vendors have their own classes of IllegalStateException for a connection that is gone.
            String name = one.getClass().getSimpleName();
            if (one instanceof IOException || name.startsWith("ConnectionClosed") || name.startsWith("ConnectionFailed")) {
                return Failure.UNAVAILABLE;
            }
            one = next(one);
        }
        return error instanceof IllegalStateException ? Failure.STATE : Failure.OTHER;
    }

    private static Throwable next(Throwable error) {
        Throwable cause = error.getCause();
        if (cause == null && error instanceof JMSException) {
            cause = ((JMSException) error).getLinkedException();
        }
        return cause == error ? null : cause;
    }

    private static String told(Throwable error) {
        String text = Failure.told(error);
        if (error instanceof JMSException) {
            String code = ((JMSException) error).getErrorCode();
            Exception linked = ((JMSException) error).getLinkedException();
            if (code != null) {
                text += " (error code " + code + ")";
            }
            if (linked != null && linked != error.getCause()) {
                text += "; linked to " + Failure.told(linked);
            }
        }
        return text;
    }
}
