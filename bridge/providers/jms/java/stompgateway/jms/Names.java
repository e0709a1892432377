package stompgateway.jms;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;

/**
 * Names of properties: which JMS allows (JMS 1.1, section 3.8.1.1), and how a header whose name it does not allow travels through a provider
 * that refuses it.
 *
 * <p>Such a name is escaped: STOMP_, then letters and digits as they are, an underscore doubled, and any other UTF-16 unit as an underscore and
 * four hexadecimal digits: content-type is STOMP_content_002dtype.
 */
public final class Names {
    private static final String PREFIX = "STOMP_";
    private static final Set<String> RESERVED = new HashSet<>(
            Arrays.asList("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"));

    private Names() {}

    public static boolean isProperty(String name) {
        if (name.isEmpty() || !Character.isJavaIdentifierStart(name.codePointAt(0)) || isReserved(name)) {
            return false;
        }
        return name.codePoints().allMatch(Character::isJavaIdentifierPart);
    }

    private static boolean isReserved(String name) {
        // Of "l\u0131ke", with the dotless i of Turkish, toUpperCase makes LIKE, too.
        return name.codePoints().allMatch(unit -> unit < 128) && RESERVED.contains(name.toUpperCase(Locale.ROOT));
    }

    public static String escape(String name) {
        StringBuilder escaped = new StringBuilder(PREFIX);
        for (int at = 0; at < name.length(); at++) {
            char unit = name.charAt(at);
            if (unit == '_') {
                escaped.append("__");
            } else if (unit < 128 && Character.isLetterOrDigit(unit)) {
                escaped.append(unit);
            } else {
                escaped.append(String.format("_%04x", (int) unit));
            }
        }
        return escaped.toString();
    }

    /** Half a character has no UTF-8, so no header's name has one. */
    private static boolean isTorn(String text) {
        return text.codePoints().anyMatch(point -> Character.getType(point) == Character.SURROGATE);
    }

    /** The name that was escaped, or null: this is a property like any other. */
    public static String unescape(String name) {
        if (!name.startsWith(PREFIX)) {
            return null;
        }
        StringBuilder plain = new StringBuilder();
        int at = PREFIX.length();
        while (at < name.length()) {
            char unit = name.charAt(at++);
            if (unit != '_') {
                plain.append(unit);
            } else if (at < name.length() && name.charAt(at) == '_') {
                plain.append('_');
                at++;
            } else if (at + 4 <= name.length() && name.substring(at, at + 4).matches("[0-9a-f]{4}")) {
                plain.append((char) Integer.parseInt(name.substring(at, at + 4), 16));
                at += 4;
            } else {
                return null;
            }
        }
        String text = plain.toString();
        return isProperty(text) || isTorn(text) || !escape(text).equals(name) ? null : text;
    }
}
