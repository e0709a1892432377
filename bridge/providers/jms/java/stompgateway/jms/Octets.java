package stompgateway.jms;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Octets that grow as they are written, big-endian; and texts, whose half surrogates are kept as values.py has it. */
public final class Octets {
    private byte[] octets = new byte[1024];
    private int size;

    public int size() {
        return size;
    }

    public byte[] take() {
        return Arrays.copyOf(octets, size);
    }

    /** Those from one place to another, into an array. */
    public void copy(int from, int to, byte[] target, int at) {
        System.arraycopy(octets, from, target, at, to - from);
    }

    /** Forget what comes behind, and the room for it where that is much. */
    public void truncate(int to) {
        size = to;
        if (octets.length - to > 1 << 20) {
            octets = Arrays.copyOf(octets, to + 1024);
        }
    }

    public Octets u8(int value) {
        room(1);
        octets[size++] = (byte) value;
        return this;
    }

    public Octets u16(int value) {
        room(2);
        octets[size++] = (byte) (value >>> 8);
        octets[size++] = (byte) value;
        return this;
    }

    public Octets u32(int value) {
        room(4);
        put32(size, value);
        size += 4;
        return this;
    }

    public Octets i64(long value) {
        return u32((int) (value >>> 32)).u32((int) value);
    }

    public Octets raw(byte[] some) {
        room(some.length);
        System.arraycopy(some, 0, octets, size, some.length);
        size += some.length;
        return this;
    }

    public Octets text(String text) {
        return sized(utf8(text));
    }

    public Octets sized(byte[] some) {
        return u32(some.length).raw(some);
    }

    /** Leave room for a length, to be given by {@link #close(int)} with what this returns. */
    public int open() {
        u32(0);
        return size;
    }

    public void close(int opened) {
        put32(opened - 4, size - opened);
    }

    public void put32(int at, int value) {
        octets[at] = (byte) (value >>> 24);
        octets[at + 1] = (byte) (value >>> 16);
        octets[at + 2] = (byte) (value >>> 8);
        octets[at + 3] = (byte) value;
    }

    private void room(int more) {
        if (octets.length - size < more) {
            long wanted = Math.max((long) size + more, 2L * octets.length);
            octets = Arrays.copyOf(octets, (int) Math.min(wanted, Integer.MAX_VALUE - 8));
        }
    }

    /** UTF-8, in which each half of a surrogate pair that stands alone is three octets. */
    public static byte[] utf8(String text) {
        for (int at = 0; at < text.length(); at++) {
            if (Character.isSurrogate(text.charAt(at))) {
                return hasHalf(text) ? utf8WithHalves(text) : text.getBytes(StandardCharsets.UTF_8);
            }
        }
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static boolean hasHalf(String text) {
        for (int at = 0; at < text.length(); at++) {
            char unit = text.charAt(at);
            if (Character.isHighSurrogate(unit) && at + 1 < text.length() && Character.isLowSurrogate(text.charAt(at + 1))) {
                at++;
            } else if (Character.isSurrogate(unit)) {
                return true;
            }
        }
        return false;
    }

    private static byte[] utf8WithHalves(String text) {
        Octets out = new Octets();
        int at = 0;
        while (at < text.length()) {
            int point = text.codePointAt(at);
            int units = Character.charCount(point);
            if (units == 1 && Character.isSurrogate((char) point)) {
                out.u8(0xE0 | point >> 12).u8(0x80 | point >> 6 & 0x3F).u8(0x80 | point & 0x3F);
            } else {
                out.raw(text.substring(at, at + units).getBytes(StandardCharsets.UTF_8));
            }
            at += units;
        }
        return out.take();
    }

    /** The text of such UTF-8. */
    public static String text(byte[] octets) {
        String text = new String(octets, StandardCharsets.UTF_8);
        return text.indexOf('\uFFFD') < 0 ? text : textWithHalves(octets);
    }

    private static String textWithHalves(byte[] octets) {
        StringBuilder text = new StringBuilder();
        int start = 0;
        for (int at = 0; at + 2 < octets.length; at++) {
            if (octets[at] == (byte) 0xED && (octets[at + 1] & 0xE0) == 0xA0 && (octets[at + 2] & 0xC0) == 0x80) {
                text.append(new String(octets, start, at - start, StandardCharsets.UTF_8));
                text.append((char) (0xD000 | (octets[at + 1] & 0x3F) << 6 | octets[at + 2] & 0x3F));
                at += 2;
                start = at + 1;
            }
        }
        return text.append(new String(octets, start, octets.length - start, StandardCharsets.UTF_8)).toString();
    }
}
