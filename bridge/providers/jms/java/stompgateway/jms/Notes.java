package stompgateway.jms;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** What a connection has to say for the log, once for each thing that it is about; its sessions say it on their own threads. */
public final class Notes {
    private final Set<String> known = new HashSet<>();
    private List<String> fresh = new ArrayList<>();

    /** @param about what decides whether this was said before; there are few of them, whatever messages hold */
    public synchronized void once(String about, String text) {
        if (known.add(about)) {
            fresh.add(text);
        }
    }

    /** What nobody has been told yet. */
    public synchronized List<String> take() {
        List<String> taken = fresh;
        fresh = new ArrayList<>();
        return taken;
    }
}
