package stompgateway.jms.javax;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectOutputStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.InflaterInputStream;
import javax.jms.JMSException;
import javax.jms.ObjectMessage;
import javax.jms.Session;
import stompgateway.jms.Failure;

/**
 * The serialised octets of an ObjectMessage, read and written without ever deserialising, which would run whatever code a sender likes.
 *
 * <p>The JMS API offers objects only, so this needs to know where a client keeps the octets. ActiveMQ has methods for them. Others have a field,
 * which is found by giving a message of theirs a harmless String and looking for its octets; that works with Artemis, HornetQ and Open MQ. With
 * any other client ObjectMessages are refused.
 */
final class ObjectBodies {
    private static final String PROBE = "stompgateway.jms.probe";
    private static final Map<Class<?>, Access> KNOWN = new ConcurrentHashMap<>();

    private interface Access {
        byte[] read(ObjectMessage message) throws ReflectiveOperationException, IOException;

        void write(ObjectMessage message, byte[] octets) throws ReflectiveOperationException;
    }

    private ObjectBodies() {}

    static byte[] read(Session session, ObjectMessage message) throws JMSException, Failure {
        try {
            byte[] octets = access(session, message.getClass()).read(message);
            if (octets == null) {
                return new byte[0];
            }
            return octets;
        } catch (ReflectiveOperationException | IOException error) {
            throw refusal(message.getClass(), error);
        }
    }

    static ObjectMessage write(Session session, byte[] octets) throws JMSException, Failure {
        ObjectMessage message = session.createObjectMessage();
        if (octets.length > 0) {
            try {
                access(session, message.getClass()).write(message, octets);
            } catch (ReflectiveOperationException error) {
                throw refusal(message.getClass(), error);
            }
        }
        return message;
    }

    private static Access access(Session session, Class<?> type) throws JMSException, Failure {
        Access known = KNOWN.get(type);
        if (known == null) {
            try {
                known = byContent(type);
                if (known == null) {
                    known = byField(session, type);
                }
            } catch (ReflectiveOperationException | IOException | RuntimeException error) {
                throw refusal(type, error);
            }
            KNOWN.put(type, known);
        }
        return known;
    }

    private static Failure refusal(Class<?> type, Exception error) {
        return new Failure(Failure.MESSAGE, "an ObjectMessage of class " + type.getName() + " gives no access to its serialised octets"
                + (error == null ? "" : ": " + Failure.told(error)), error);
    }

    /** ActiveMQ: getContent and setContent with a sequence of octets, which may be compressed. */
    private static Access byContent(Class<?> type) throws ReflectiveOperationException {
        final Method get;
        final Method set;
        final Method compressed;
        try {
            get = type.getMethod("getContent");
            set = type.getMethod("setContent", get.getReturnType());
            compressed = type.getMethod("isCompressed");
        } catch (NoSuchMethodException error) {
            return null;
        }
        final Class<?> sequence = get.getReturnType();
        final Field data = sequence.getField("data");
        final Field offset = sequence.getField("offset");
        final Field length = sequence.getField("length");
        return new Access() {
            @Override
            public byte[] read(ObjectMessage message) throws ReflectiveOperationException, IOException {
                Object content = get.invoke(message);
                if (content == null) {
                    return null;
                }
                int start = offset.getInt(content);
                byte[] octets = Arrays.copyOfRange((byte[]) data.get(content), start, start + length.getInt(content));
                return (Boolean) compressed.invoke(message) ? inflated(octets) : octets;
            }

            @Override
            public void write(ObjectMessage message, byte[] octets) throws ReflectiveOperationException {
                set.invoke(message, sequence.getConstructor(byte[].class).newInstance((Object) octets));
            }
        };
    }

    private static byte[] inflated(byte[] octets) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        byte[] some = new byte[8192];
        InputStream in = new InflaterInputStream(new ByteArrayInputStream(octets));
        for (int count = in.read(some); count >= 0; count = in.read(some)) {
            out.write(some, 0, count);
        }
        return out.toByteArray();
    }

    private static Access byField(Session session, Class<?> type) throws JMSException, Failure, ReflectiveOperationException, IOException {
        ByteArrayOutputStream serialised = new ByteArrayOutputStream();
        ObjectOutputStream out = new ObjectOutputStream(serialised);
        out.writeObject(PROBE);
        out.flush();
        ObjectMessage probe = session.createObjectMessage();
        probe.setObject(PROBE);
        if (type.isInstance(probe)) {
            for (Class<?> one = type; one != null; one = one.getSuperclass()) {
                for (Field field : one.getDeclaredFields()) {
                    if (field.getType() == byte[].class) {
                        field.setAccessible(true);
                        if (Arrays.equals((byte[]) field.get(probe), serialised.toByteArray())) {
                            return of(field);
                        }
                    }
                }
            }
        }
        throw refusal(type, null);
    }

    private static Access of(final Field field) {
        return new Access() {
            @Override
            public byte[] read(ObjectMessage message) throws ReflectiveOperationException {
                byte[] octets = (byte[]) field.get(message);
                return octets == null ? null : octets.clone();
            }

            @Override
            public void write(ObjectMessage message, byte[] octets) throws ReflectiveOperationException {
                field.set(message, octets);
            }
        };
    }
}
