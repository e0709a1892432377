package com.acme;

import com.sun.messaging.bridge.api.MessageTransformer;
import java.util.Properties;
import javax.jms.Message;

/** Makes every message a dead one. */
public class Refuses extends MessageTransformer<Message, Message> {
    @Override
    public Message transform(Message message, boolean readOnly, String charsetName, String source, String target, Properties properties) throws Exception {
        throw new IllegalArgumentException("not one of ours");
    }
}
