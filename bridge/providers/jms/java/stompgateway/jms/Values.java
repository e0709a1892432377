package stompgateway.jms;

import java.nio.ByteBuffer;

/** Values with their Java types, as gateway/messaging/values.py encodes them. */
public final class Values {
    private Values() {}

    /** @return whether the value is of a type that JMS has; if not, its text was written */
    public static boolean write(Octets out, Object value) {
        if (value == null) {
            out.u8(0);
        } else if (value instanceof String) {
            out.u8(8).text((String) value);
        } else if (value instanceof Integer) {
            out.u8(4).u32((Integer) value);
        } else if (value instanceof Long) {
            out.u8(5).i64((Long) value);
        } else if (value instanceof Boolean) {
            out.u8(1).u8((Boolean) value ? 1 : 0);
        } else if (value instanceof Double) {
            out.u8(7).i64(Double.doubleToRawLongBits((Double) value));
        } else if (value instanceof Float) {
            out.u8(6).u32(Float.floatToRawIntBits((Float) value));
        } else if (value instanceof Byte) {
            out.u8(2).u8((Byte) value);
        } else if (value instanceof Short) {
            out.u8(3).u16((Short) value);
        } else if (value instanceof Character) {
            out.u8(10).u16((Character) value);
        } else if (value instanceof byte[]) {
            out.u8(9).sized((byte[]) value);
        } else {
            out.u8(8).text(value.toString());
            return false;
        }
        return true;
    }

    public static Object read(ByteBuffer in) {
        int kind = in.get();
        switch (kind) {
            case 0:
                return null;
            case 1:
                return in.get() != 0;
            case 2:
                return in.get();
            case 3:
                return in.getShort();
            case 4:
                return in.getInt();
            case 5:
                return in.getLong();
            case 6:
                return in.getFloat();
            case 7:
                return in.getDouble();
            case 8:
                return text(in);
            case 9:
                return sized(in);
            case 10:
                return in.getChar();
            default:
                throw new IllegalArgumentException(kind + " is no type of value");
        }
    }

    public static byte[] sized(ByteBuffer in) {
        return some(in, in.getInt());
    }

    public static byte[] some(ByteBuffer in, int length) {
        byte[] octets = new byte[length];
        in.get(octets);
        return octets;
    }

    public static String text(ByteBuffer in) {
        return Octets.text(sized(in));
    }
}
