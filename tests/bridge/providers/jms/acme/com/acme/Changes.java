package com.acme;

import com.sun.messaging.bridge.api.MessageTransformer;
import java.io.File;
import java.util.Properties;
import java.util.TreeMap;
import javax.jms.BytesMessage;
import javax.jms.Message;
import javax.jms.ObjectMessage;
import javax.jms.TextMessage;

/** A transformer as its author wrote it for Open MQ: the property "do" says what it does. */
public class Changes extends MessageTransformer<Message, Message> {
    private int calls;

    @Override
    public Message transform(Message message, boolean readOnly, String charsetName, String source, String target, Properties properties) throws Exception {
        calls++;
        String what = message.getStringProperty("do");
        if (what == null) {
            return message;
        }
        switch (what) {
            case "upper":
                TextMessage upper = (TextMessage) createJMSMessage(JMSMessageType.TEXTMESSAGE);
                upper.setText(((TextMessage) message).getText().toUpperCase());
                upper.setStringProperty("was", what);
                return upper;
            case "clear":
                message.clearProperties();
                message.setStringProperty("was", what);
                message.clearBody();
                ((TextMessage) message).setText("cleared");
                return message;
            case "bytes":
                BytesMessage bytes = (BytesMessage) createJMSMessage(JMSMessageType.BYTESMESSAGE);
                bytes.writeBytes(new byte[] {0, 1, (byte) 0xFF});
                return bytes;
            case "object":
                ObjectMessage object = (ObjectMessage) createJMSMessage(JMSMessageType.OBJECTMESSAGE);
                object.setObject("serialised");
                return object;
            case "name":
                branchTo("elsewhere");
                return message;
            case "unknown":
                branchTo("unknown");
                return message;
            case "queue":
                branchTo(createQueue("by.queue"));
                message.setJMSReplyTo(createTopic("answers"));
                return message;
            case "drop":
                noTransfer();
                return message;
            case "null":
                return null;
            case "throw":
                throw new IllegalArgumentException("not this one");
            case "error":
                throw new NoClassDefFoundError("com/acme/Other");
            case "property":
                message.setStringProperty("was", what);
                return message;
            case "body":
                ((TextMessage) message).setText("changed");
                return message;
            case "number":
                branchTo(7);
                return message;
            case "hang":
                if (new File(message.getStringProperty("file")).delete()) {
                    Thread.sleep(Long.MAX_VALUE);
                }
                return message;
            case "tell":
                TextMessage told = (TextMessage) createJMSMessage(JMSMessageType.TEXTMESSAGE);
                told.setText(String.join("|", String.valueOf(readOnly), charsetName, source, target, new TreeMap<Object, Object>(properties).toString(),
                        message.getJMSMessageID(), String.valueOf(message.getJMSTimestamp()), String.valueOf(message.getJMSPriority()),
                        String.valueOf(message.getJMSDestination()), String.valueOf(calls)));
                return told;
            default:
                throw new IllegalStateException(what);
        }
    }
}
