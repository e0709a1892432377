import java.util.Arrays;
import stompgateway.jms.Names;

/** What the gateway's classes make of a name: whether it is a property's, its escape, and what it is the escape of. */
public final class Naming {
    private Naming() {}

    public static void main(String[] arguments) throws Exception {
        Lines.serve(question -> {
            String name = question.get(0);
            return Arrays.asList(String.valueOf(Names.isProperty(name)), Names.escape(name), Names.unescape(name));
        });
    }
}
