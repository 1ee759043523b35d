// Fills a heap with arrays, drops every other one, collects, and sums what is left, again and again: the collector moves what lives.
public class Sorted {
    public static void main(String[] arguments) {
        int arrays = 2 * Integer.parseInt(arguments[0]);
        long[][] kept = new long[arrays][];
        for (int round = 0; round < 3; round++) {
            for (int at = round % 2; at < arrays; at += 2) {
                kept[at] = new long[1 << 15];
                for (int word = 0; word < kept[at].length; word++) kept[at][word] = (long) at * word + round;
            }
            System.gc();
            long sum = 0;
            for (long[] array : kept) if (array != null) for (long word : array) sum += word;
            System.out.println(sum);
        }
    }
}
