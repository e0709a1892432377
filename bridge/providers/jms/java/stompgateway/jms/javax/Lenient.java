package stompgateway.jms.javax;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import javax.jms.BytesMessage;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.ObjectMessage;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;
import javax.jms.Topic;
import stompgateway.jms.Failure;

/** A message that cannot be read whole, as one that gives what it can: of what fails it gives nothing, and remembers how it failed. */
final class Lenient implements InvocationHandler {
    private static final Class<?>[] KINDS = {TextMessage.class, BytesMessage.class, MapMessage.class, StreamMessage.class, ObjectMessage.class};

    private final Message message;
    private final Set<String> failures = new LinkedHashSet<>();

    /** @param error what reading it whole has failed with */
    Lenient(Message message, Throwable error) {
        this.message = message;
        failures.add(Failures.of(error).getMessage());
    }

    /** The message, of the same type. */
    Message view() {
        Class<?> type = Message.class;
        for (Class<?> kind : KINDS) {
            if (kind.isInstance(message)) {
                type = kind;
                break;
            }
        }
        return (Message) Proxy.newProxyInstance(Lenient.class.getClassLoader(), new Class<?>[] {type}, this);
    }

    /** Each failure, once. */
    String told() {
        return String.join("; ", failures);
    }

    /** The octets of the body, which ActiveMQ's client gives as they came, compressed if they are; none where the client does not. */
    byte[] octets() {
        try {
            Object content = message.getClass().getMethod("getContent").invoke(message);
            if (content == null) {
                return new byte[0];
            }
            Class<?> sequence = content.getClass();
            int start = sequence.getField("offset").getInt(content);
            return Arrays.copyOfRange((byte[]) sequence.getField("data").get(content), start, start + sequence.getField("length").getInt(content));
        } catch (ReflectiveOperationException | RuntimeException | LinkageError error) {
            return new byte[0];
        }
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) {
        try {
            Object value = method.invoke(message, arguments);
            if (value instanceof Destination && Destinations.name((Destination) value, value instanceof Topic) == null) {
                throw new Failure(Failure.MESSAGE, "a destination without a name", null);
            }
            return value instanceof Enumeration ? asFar(method, (Enumeration<?>) value) : value;
        } catch (InvocationTargetException error) {
            return failed(method, arguments, error.getTargetException());
        } catch (ReflectiveOperationException | JMSException | Failure | RuntimeException | LinkageError error) {
            return failed(method, arguments, error);
        }
    }

    /** All elements, or those before one that fails. */
    private Enumeration<?> asFar(Method method, Enumeration<?> all) {
        List<Object> found = new ArrayList<>();
        try {
            while (all.hasMoreElements()) {
                found.add(all.nextElement().toString());
            }
        } catch (Throwable error) {
            failed(method, null, error);
        }
        return Collections.enumeration(found);
    }

    private Object failed(Method method, Object[] arguments, Throwable error) {
        String argument = arguments == null ? "" : String.valueOf(arguments[0]);
        failures.add(method.getName() + "(" + argument + ") failed: " + Failures.of(error).getMessage());
        Class<?> type = method.getReturnType();
        if (type == boolean.class) {
            return false;
        }
        if (type == int.class) {
            return 0;
        }
        if (type == long.class) {
            return 0L;
        }
        return type == Enumeration.class ? Collections.emptyEnumeration() : null;
    }
}
