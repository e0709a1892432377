package stompgateway.jms.javax;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import javax.jms.BytesMessage;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageNotWriteableException;
import javax.jms.ObjectMessage;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;

/**
 * A message as a consumer gets it (JMS 1.1, section 3.10): properties and body can be changed once they have been cleared, other headers at any time. The one
 * behind it was made here, and can be written; no API makes it read-only. Remembers whether it was changed.
 */
final class ReadOnly implements InvocationHandler {
    private static final Class<?>[] KINDS = {TextMessage.class, BytesMessage.class, MapMessage.class, StreamMessage.class, ObjectMessage.class};

    final Message message;
    private boolean body;
    private boolean properties;
    private boolean changed;

    private ReadOnly(Message message) {
        this.message = message;
    }

    /** The message, read-only. */
    static Message view(Message message) throws JMSException {
        Class<?> type = Message.class;
        for (Class<?> kind : KINDS) {
            if (kind.isInstance(message)) {
                type = kind;
                break;
            }
        }
        rewind(message);
        return (Message) Proxy.newProxyInstance(ReadOnly.class.getClassLoader(), new Class<?>[] {type}, new ReadOnly(message));
    }

    /** What is behind a message, or null where it is none of these. */
    static ReadOnly behind(Object message) {
        InvocationHandler handler = Proxy.isProxyClass(message.getClass()) ? Proxy.getInvocationHandler(message) : null;
        return handler instanceof ReadOnly ? (ReadOnly) handler : null;
    }

    /** Read it from its beginning. */
    static void rewind(Message message) throws JMSException {
        if (message instanceof BytesMessage) {
            ((BytesMessage) message).reset();
        } else if (message instanceof StreamMessage) {
            ((StreamMessage) message).reset();
        }
    }

    boolean changed() {
        return changed;
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        String name = method.getName();
        if (name.equals("equals")) {
            return arguments[0] == proxy;
        }
        if (name.equals("acknowledge")) {
            // The link does that.
            return null;
        }
        boolean clears = name.startsWith("clear");
        if (clears || name.startsWith("set") || name.startsWith("write")) {
            if (!clears && !name.startsWith("setJMS")) {
                boolean property = name.endsWith("Property");
                if (!(property ? properties : body)) {
                    throw new MessageNotWriteableException(name + ": the message is read-only; call " + (property ? "clearProperties" : "clearBody")
                            + "() first, or make another by createJMSMessage()");
                }
            }
            changed = true;
            properties |= name.equals("clearProperties");
            body |= name.equals("clearBody");
        }
        try {
            return method.invoke(message, arguments);
        } catch (InvocationTargetException error) {
            throw error.getTargetException();
        }
    }
}
