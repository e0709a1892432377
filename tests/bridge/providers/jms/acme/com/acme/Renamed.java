package com.acme;

import com.sun.messaging.bridge.service.MessageTransformer;
import java.util.Properties;
import javax.jms.Message;

/** Of the package that the guide has. */
public class Renamed extends MessageTransformer<Message, Message> {
    @Override
    public Message transform(Message message, boolean readOnly, String charsetName, String source, String target, Properties properties) throws Exception {
        message.clearProperties();
        message.setStringProperty("by", new Named().name(source));
        return message;
    }
}
