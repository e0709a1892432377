package stompgateway.jms;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The message transformers of this process. Each has a class loader of its own, as the class that they extend is there for both namespaces by one name.
 *
 * <p>One that nobody uses now is kept for the next who asks by its key: there is one for each link, however often the link connects. One whose thread hangs is
 * left to that thread.
 */
public final class Transformers {
    private static final int MOST_KEPT = 256;
    /** How long one is waited for that a connection has which is being closed, in milliseconds. */
    private static final long PATIENCE = 5000;
    private static final Set<String> USED = new HashSet<>();
    private static final Map<String, Transforming<?, ?>> KEPT = new LinkedHashMap<String, Transforming<?, ?>>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Transforming<?, ?>> eldest) {
            return size() > MOST_KEPT;
        }
    };

    private Transformers() {}

    /**
     * The transformer of this key, made if there is none.
     *
     * @param namespace javax or jakarta
     * @param home the jar or folder that has its class
     * @param jars where else its classes may be, besides the class path of this process
     */
    public static Transforming<?, ?> take(String key, String namespace, String name, String home, List<String> jars) throws Failure {
        Transforming<?, ?> kept = kept(key);
        if (kept != null) {
            return kept;
        }
        boolean made = false;
        try {
            Transforming<?, ?> fresh = made(namespace, name, home, jars);
            made = true;
            return fresh;
        } finally {
            if (!made) {
                synchronized (KEPT) {
                    USED.remove(key);
                }
            }
        }
    }

    private static Transforming<?, ?> kept(String key) throws Failure {
        long until = System.currentTimeMillis() + PATIENCE;
        synchronized (KEPT) {
            try {
                for (long left = PATIENCE; USED.contains(key) && left > 0; left = until - System.currentTimeMillis()) {
                    KEPT.wait(left);
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new Failure(Failure.OTHER, "interrupted", error);
            }
            USED.add(key);
            return KEPT.remove(key);
        }
    }

    private static Transforming<?, ?> made(String namespace, String name, String home, List<String> jars) throws Failure {
        try {
            List<URL> places = new ArrayList<>();
            places.add(new File(home).toURI().toURL());
            for (String jar : jars) {
                places.add(new File(jar).toURI().toURL());
            }
            Class<?> type = new Loader(places.toArray(new URL[0]), namespace).loadClass(name);
            if (!Transforming.class.isAssignableFrom(type)) {
                throw new Failure(Failure.OTHER, name + " extends neither com.sun.messaging.bridge.api.MessageTransformer nor the one of "
                        + "com.sun.messaging.bridge.service", null);
            }
            return (Transforming<?, ?>) type.getConstructor().newInstance();
        } catch (InvocationTargetException error) {
            Heap.check(error);
            throw new Failure(Failure.OTHER, "its constructor threw " + Failure.told(error.getCause()), error);
        } catch (ReflectiveOperationException | LinkageError | IOException error) {
            throw new Failure(Failure.MISSING, "its class cannot be used: " + Failure.told(error), error);
        }
    }

    /** It is used no more. */
    public static void giveBack(String key, Transforming<?, ?> transformer) {
        synchronized (KEPT) {
            if (USED.remove(key)) {
                KEPT.putIfAbsent(key, transformer);
                KEPT.notifyAll();
            }
        }
    }

    /**
     * Asks the class path of the process first, so that all have the same JMS API and the same client; but what is in the transformer's own jar is loaded
     * here, where the class is that it extends.
     */
    private static final class Loader extends URLClassLoader {
        private static final String PACKAGE = "com.sun.messaging.bridge.";
        private static final List<String> EXTENDED = Arrays.asList(PACKAGE + "api.MessageTransformer", PACKAGE + "service.MessageTransformer");

        private final String prefix;
        private final String home;

        Loader(URL[] places, String namespace) {
            super(places, Loader.class.getClassLoader());
            prefix = "stompgateway/jms/" + namespace + "/";
            String place = places[0].toString();
            home = place.endsWith("/") ? place : "jar:" + place + "!/";
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                if (found == null && isExtended(name)) {
                    found = extended(name);
                } else if (found == null && !name.startsWith("javax.jms.") && !name.startsWith("jakarta.jms.") && isHome(name)) {
                    found = findClass(name);
                }
                return found == null ? super.loadClass(name, resolve) : found;
            }
        }

        private boolean isHome(String name) {
            URL found = findResource(name.replace('.', '/') + ".class");
            return found != null && found.toString().startsWith(home);
        }

        /** Whether it is the class that transformers extend, or one inside of it. */
        private static boolean isExtended(String name) {
            return name.startsWith(PACKAGE) && EXTENDED.contains(name.split("\\$", 2)[0]);
        }

        private Class<?> extended(String name) throws ClassNotFoundException {
            String path = prefix + name.replace('.', '/') + ".class";
            try (InputStream in = getParent().getResourceAsStream(path)) {
                if (in == null) {
                    throw new ClassNotFoundException(name);
                }
                Octets octets = new Octets();
                byte[] some = new byte[8192];
                for (int count = in.read(some); count >= 0; count = in.read(some)) {
                    octets.raw(Arrays.copyOf(some, count));
                }
                byte[] all = octets.take();
                return defineClass(name, all, 0, all.length);
            } catch (IOException error) {
                throw new ClassNotFoundException(name, error);
            }
        }
    }
}
