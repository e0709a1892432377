import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Questions and answers as lines, for {@code lines.py}: texts that are separated by blanks, each as "=" and its UTF-16 units in hexadecimal digits; "~" is null. */
final class Lines {
    /** What a question asks. */
    interface Answering {
        List<String> answer(List<String> question) throws Exception;
    }

    private Lines() {}

    /** Answer each line until there are no more. An exception is answered with "!" and its text. */
    static void serve(Answering answering) throws IOException {
        PrintStream out = System.out;
        // What else prints must not be taken for an answer.
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            StringBuilder told = new StringBuilder();
            try {
                List<String> question = new ArrayList<>();
                for (String field : line.split(" ")) {
                    question.add(decoded(field));
                }
                for (String field : answering.answer(question)) {
                    told.append(told.length() == 0 ? "" : " ").append(encoded(field));
                }
            } catch (Exception | LinkageError error) {
                told = new StringBuilder("!").append(encoded(String.valueOf(error)));
            }
            out.println(told);
            out.flush();
        }
    }

    private static String encoded(String text) {
        if (text == null) {
            return "~";
        }
        StringBuilder digits = new StringBuilder("=");
        for (char unit : text.toCharArray()) {
            digits.append(String.format("%04x", (int) unit));
        }
        return digits.toString();
    }

    private static String decoded(String field) {
        StringBuilder text = new StringBuilder();
        for (int at = 1; at < field.length(); at += 4) {
            text.append((char) Integer.parseInt(field.substring(at, at + 4), 16));
        }
        return text.toString();
    }
}
