package stompgateway.jms;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/** The single calls: connection factories and connections by the numbers that the gateway gave them, and what is asked of these. The layout is that of wire.py. */
final class Calls {
    private static final int FACTORY = 1;
    private static final int CONNECT = 2;
    private static final int REMEMBER = 3;
    private static final int TEMPORARY = 4;
    private static final int UNSUBSCRIBE = 5;
    private static final int CLOSE = 6;
    private static final int DROP = 7;

    private final Wire wire;
    private final ConcurrentMap<Integer, Factory> factories = new ConcurrentHashMap<>();
    private final ConcurrentMap<Integer, Link> links = new ConcurrentHashMap<>();

    Calls(Wire wire) {
        this.wire = wire;
    }

    /** @throws Failure it is closed */
    Link link(int number) throws Failure {
        Link found = links.get(number);
        if (found == null) {
            throw new Failure(Failure.UNAVAILABLE, "the connection is closed", null);
        }
        return found;
    }

    /** Make a call. @param result to which what comes of it is written */
    void make(ByteBuffer call, Octets result) throws Failure {
        int verb = call.get();
        int number = call.getInt();
        switch (verb) {
            case FACTORY:
                String name = Values.text(call);
                Factory factory = Directory.factory(name, pairs(call));
                factories.put(number, factory);
                result.text(factory.className()).u8(factory.xa() ? 1 : 0);
                break;
            case CONNECT:
                connect(number, call, result);
                break;
            case REMEMBER:
                Factory remembering = factories.get(number);
                String[] found = remembering.remember(Directory.lookUp(Values.text(call), pairs(call)));
                result.text(found[0]).text(found[1]);
                break;
            case TEMPORARY:
                boolean topic = call.get() != 0;
                link(number).temporary(topic, Values.text(call));
                break;
            case DROP:
                boolean ofTopic = call.get() != 0;
                link(number).dropTemporary(ofTopic, Values.text(call));
                break;
            case UNSUBSCRIBE:
                link(number).unsubscribe(Values.text(call));
                break;
            case CLOSE:
                Link closing = links.remove(number);
                if (closing != null) {
                    closing.close();
                }
                break;
            default:
                throw new IllegalArgumentException("call " + verb + " is unknown");
        }
    }

    private void connect(int number, ByteBuffer call, Octets result) throws Failure {
        Factory factory = factories.get(call.getInt());
        String user = optional(call);
        String password = optional(call);
        String clientId = optional(call);
        Link link = factory.connect(user, password, clientId, reason -> lost(number, reason));
        links.put(number, link);
        String known = link.clientId();
        result.u8(known == null ? 0 : 1).text(known == null ? "" : known).text(link.product());
        result.u8(link.xa() ? 1 : 0).u8(link.plain() ? 1 : 0).u8(link.delays() ? 1 : 0);
    }

    private void lost(int link, String reason) {
        try {
            wire.write(Wire.LOST, link, new Octets().text(Failure.brief(reason)));
        } catch (IOException error) {
            // The gateway is gone, and so is this process soon.
            Thread.currentThread().interrupt();
        }
    }

    private static String optional(ByteBuffer call) {
        boolean given = call.get() != 0;
        String text = Values.text(call);
        return given ? text : null;
    }

    /** A u32 number of pairs, and names and values in turn. */
    static String[] pairs(ByteBuffer in) {
        String[] texts = new String[2 * in.getInt()];
        for (int at = 0; at < texts.length; at++) {
            texts[at] = Values.text(in);
        }
        return texts;
    }
}
