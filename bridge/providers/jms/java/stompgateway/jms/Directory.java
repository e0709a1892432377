package stompgateway.jms;

import java.lang.reflect.InvocationTargetException;
import java.util.Hashtable;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import javax.naming.Reference;

/** What JNDI finds with the class path of this process. */
public final class Directory {
    private static final String[] NAMESPACES = {"javax", "jakarta"};
    private static final ClassLoader LOADER = Directory.class.getClassLoader();

    private Directory() {}

    /** @param environment names and values in turn */
    public static Factory factory(String name, String[] environment) throws Failure {
        Object found = lookUp(name, environment);
        for (String namespace : NAMESPACES) {
            String api = namespace + ".jms.";
            if (isA(found.getClass(), api + "ConnectionFactory") || isA(found.getClass(), api + "XAConnectionFactory")) {
                try {
                    Class<?> type = LOADER.loadClass("stompgateway.jms." + namespace + ".JmsFactory");
                    return (Factory) type.getConstructor(Object.class).newInstance(found);
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
    static Object lookUp(String name, String[] environment) throws Failure {
        Hashtable<String, String> table = new Hashtable<>();
        for (int at = 0; at < environment.length; at += 2) {
            table.put(environment[at], environment[at + 1]);
        }
        String initial = table.get(Context.INITIAL_CONTEXT_FACTORY);
        if (initial != null) {
            try {
                Class.forName(initial, true, LOADER);
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
