package stompgateway.jms;

import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.Hashtable;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import javax.naming.Reference;

/**
 * A class path of its own, and what JNDI finds with it.
 *
 * <p>Each class path has a class loader, so that the jars of two providers, their two copies of the JMS API among them, do not clash. The classes
 * of ours that use the JMS API are loaded by it too, because they must see that copy.
 */
public final class Directory {
    private static final String[] NAMESPACES = {"javax", "jakarta"};
    private final ClassLoader loader;

    /** @param classPath jars and folders, ours of the two namespaces among them */
    public Directory(String[] classPath) throws Failure {
        URL[] urls = new URL[classPath.length];
        for (int at = 0; at < urls.length; at++) {
            try {
                urls[at] = new File(classPath[at]).toURI().toURL();
            } catch (MalformedURLException error) {
                throw new Failure(Failure.MISSING, "not a path: " + classPath[at], error);
            }
        }
        loader = new URLClassLoader(urls, Directory.class.getClassLoader());
    }

    /** @param environment names and values in turn */
    public Factory factory(String name, String[] environment) throws Failure {
        Object found = lookUp(name, environment);
        for (String namespace : NAMESPACES) {
            String api = namespace + ".jms.";
            if (isA(found.getClass(), api + "ConnectionFactory") || isA(found.getClass(), api + "XAConnectionFactory")) {
                try {
                    Class<?> type = loader.loadClass("stompgateway.jms." + namespace + ".JmsFactory");
                    return (Factory) type.getConstructor(Object.class, ClassLoader.class).newInstance(found, loader);
                } catch (InvocationTargetException error) {
                    throw new Failure(Failure.OTHER, Failure.told(error.getCause()), error);
                } catch (ReflectiveOperationException | LinkageError error) {
                    throw Failure.missing(error);
                }
            }
        }
        throw new Failure(Failure.NAMING, "'" + name + "' is a " + found.getClass().getName()
                + ", where a ConnectionFactory of javax.jms or jakarta.jms was expected", null);
    }

    /** What JNDI has by this name; never null. */
    public Object lookUp(String name, String[] environment) throws Failure {
        Thread.currentThread().setContextClassLoader(loader);
        Hashtable<String, String> table = new Hashtable<>();
        for (int at = 0; at < environment.length; at += 2) {
            table.put(environment[at], environment[at + 1]);
        }
        String initial = table.get(Context.INITIAL_CONTEXT_FACTORY);
        if (initial != null) {
            try {
                Class.forName(initial, true, loader);
            } catch (ClassNotFoundException | LinkageError error) {
                throw Failure.missing(error);
            }
        }
        Object found;
        try {
            Context context = new InitialContext(table);
            try {
                found = context.lookup(name);
            } finally {
                context.close();
            }
        } catch (NamingException error) {
            throw new Failure(Failure.NAMING, "looking up '" + name + "' failed: " + Failure.told(error), error);
        } catch (LinkageError error) {
            throw Failure.missing(error);
        } catch (RuntimeException error) {
            throw new Failure(Failure.NAMING, "looking up '" + name + "' failed: " + Failure.told(error), error);
        }
        if (found == null) {
            throw new Failure(Failure.NAMING, "there is nothing by the name '" + name + "'", null);
        }
        if (found instanceof Reference) {
            Reference reference = (Reference) found;
            throw new Failure(Failure.MISSING, "'" + name + "' is a reference to a " + reference.getClassName() + ", which needs class "
                    + reference.getFactoryClassName() + " on the class path", null);
        }
        return found;
    }

    private static boolean isA(Class<?> type, String name) {
        for (Class<?> one = type; one != null; one = one.getSuperclass()) {
            if (one.getName().equals(name)) {
                return true;
            }
            for (Class<?> face : one.getInterfaces()) {
                if (isA(face, name)) {
                    return true;
                }
            }
        }
        return false;
    }
}
