package stompgateway.jms.javax;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Map;
import javax.jms.Message;
import stompgateway.jms.Octets;

/**
 * ActiveMQ's client sends strings in properties and maps with each half of a surrogate pair by itself, and reads such octets as damaged ones: of
 * a character beyond the basic plane it makes two question marks. It still has the octets, and from those the string is read here.
 */
final class Undamaged {
    private static final char REPLACEMENT = '\uFFFD';

    private Undamaged() {}

    static Object property(Message message, String name, Object value) {
        return value(message, "getProperties", name, value);
    }

    static Object entry(Message message, String name, Object value) {
        return value(message, "getContentMap", name, value);
    }

    private static Object value(Message message, String method, String name, Object value) {
        if (!(value instanceof String) || ((String) value).indexOf(REPLACEMENT) < 0
                || !message.getClass().getName().startsWith("org.apache.activemq.command.")) {
            return value;
        }
        try {
            Method all = message.getClass().getMethod(method);
            Object raw = ((Map<?, ?>) all.invoke(message)).get(name);
            Class<?> type = raw.getClass();
            byte[] data = (byte[]) type.getField("data").get(raw);
            int offset = type.getField("offset").getInt(raw);
            return Octets.text(Arrays.copyOfRange(data, offset, offset + type.getField("length").getInt(raw)));
        } catch (ReflectiveOperationException | RuntimeException error) {
            // Another version, or a string that was damaged before it was sent: then this is what it says.
            return value;
        }
    }
}
