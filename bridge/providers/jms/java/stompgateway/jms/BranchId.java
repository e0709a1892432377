package stompgateway.jms;

import java.nio.ByteBuffer;
import java.util.Arrays;
import javax.transaction.xa.Xid;

/** The Xid of a branch: three values, and equal to one of the same values. In octets as batches.py has it. */
public final class BranchId implements Xid {
    private final int formatId;
    private final byte[] globalId;
    private final byte[] qualifier;

    private BranchId(int formatId, byte[] globalId, byte[] qualifier) {
        this.formatId = formatId;
        this.globalId = globalId;
        this.qualifier = qualifier;
    }

    public static BranchId read(ByteBuffer in) {
        int formatId = in.getInt();
        byte[] globalId = Values.some(in, in.get() & 0xFF);
        return new BranchId(formatId, globalId, Values.some(in, in.get() & 0xFF));
    }

    /** One of ours that equals that of a provider, whose own class may have another equality. */
    public static BranchId of(Xid xid) {
        return new BranchId(xid.getFormatId(), xid.getGlobalTransactionId().clone(), xid.getBranchQualifier().clone());
    }

    public void write(Octets out) {
        out.u32(formatId).u8(globalId.length).raw(globalId).u8(qualifier.length).raw(qualifier);
    }

    @Override
    public int getFormatId() {
        return formatId;
    }

    @Override
    public byte[] getGlobalTransactionId() {
        return globalId.clone();
    }

    @Override
    public byte[] getBranchQualifier() {
        return qualifier.clone();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof BranchId && formatId == ((BranchId) other).formatId
                && Arrays.equals(globalId, ((BranchId) other).globalId) && Arrays.equals(qualifier, ((BranchId) other).qualifier);
    }

    @Override
    public int hashCode() {
        return formatId * 961 + Arrays.hashCode(globalId) * 31 + Arrays.hashCode(qualifier);
    }

    /** As in logs: the format, and both parts in hexadecimal. */
    @Override
    public String toString() {
        StringBuilder text = new StringBuilder().append(formatId).append(':');
        hexadecimal(text, globalId);
        hexadecimal(text.append(':'), qualifier);
        return text.toString();
    }

    private static void hexadecimal(StringBuilder text, byte[] octets) {
        for (byte octet : octets) {
            text.append(Character.forDigit(octet >> 4 & 0xF, 16)).append(Character.forDigit(octet & 0xF, 16));
        }
    }
}
