package stompgateway.jms;

import java.util.Properties;

/** A message transformer, as its callers know it: its own class is of one namespace, and loaded for it alone. */
public interface Transforming<T, S> {
    /** Before each message: a Session of the namespace, and the type of the bridge. */
    void init(Object session, String bridgeType);

    T transform(S message, boolean readOnly, String charsetName, String source, String target, Properties properties) throws Exception;

    /** A String, a Destination of the namespace, or null. */
    Object getBranchTo();

    boolean isNoTransfer();
}
