import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** What the Java drivers share: their flags, their pace, their clock and their one line of result. */
final class Load {
    static final long STALL_SECONDS_MAX = 300;
    /** This share of the messages (one in so many) warms client and server up before time is taken. */
    static final int WARM_UP_SHARE = 5;

    interface Sender {
        void send(byte[] payload) throws Exception;
    }

    final String work;
    private final Map<String, String> flags = new HashMap<>();

    Load(String[] arguments) {
        work = arguments[0];
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            flags.put(arguments[i].substring(1), arguments[i + 1]);
        }
    }

    String text(String flag) {
        return flags.get(flag);
    }

    int number(String flag) {
        return Integer.parseInt(flags.get(flag));
    }

    int port() {
        return Integer.parseInt(text("address").split(":")[1]);
    }

    String[] topics() {
        String[] names = new String[number("topics")];
        Arrays.setAll(names, i -> text("topic") + "-" + i);
        return names;
    }

    /** Publish everything, a thread per producer; the first share warms up, the rate is that of the rest. */
    double secondsOf(Publisher[] publishers) throws Exception {
        int count = number("count");
        int warmUp = count / WARM_UP_SHARE;
        publishAll(publishers, warmUp);
        long start = System.nanoTime();
        publishAll(publishers, count - warmUp);
        double rest = (System.nanoTime() - start) / 1e9;
        return rest * count / (count - warmUp);
    }

    interface Publisher {
        /** Publish that many messages and return when all are confirmed. */
        void publish(int messages) throws Exception;
    }

    private static void publishAll(Publisher[] publishers, int count) throws Exception {
        Thread[] threads = new Thread[publishers.length];
        Throwable[] failures = new Throwable[publishers.length];
        for (int i = 0; i < threads.length; i++) {
            int number = i;
            int share = count / threads.length + (i < count % threads.length ? 1 : 0);
            threads[i] = new Thread(() -> {
                try {
                    publishers[number].publish(share);
                } catch (Throwable failure) {
                    failures[number] = failure;
                }
            });
            threads[i].start();
        }
        for (int i = 0; i < threads.length; i++) {
            threads[i].join();
            if (failures[i] != null) throw new Exception("producer " + i + ": " + failures[i], failures[i]);
        }
    }

    /** Send every message when it is due, stamped with that moment; a late pacer catches up at once. */
    void pace(Sender sender) throws Exception {
        long start = System.nanoTime();
        double period = 1e9 / number("rate");
        for (int sent = 0; sent < number("count"); sent++) {
            long due = start + (long) (sent * period);
            long wait;
            while ((wait = due - System.nanoTime()) > 0) LockSupport.parkNanos(wait);
            byte[] payload = new byte[number("size")];
            ByteBuffer.wrap(payload).putLong(due);
            sender.send(payload);
        }
    }

    static void await(CountDownLatch done) throws Exception {
        if (!done.await(STALL_SECONDS_MAX, TimeUnit.SECONDS)) throw new Exception("messages are missing");
    }

    /** End-to-end latencies; one thread only. */
    static final class Stopwatch {
        private final long[] taken;
        private int received;

        Stopwatch(int count) {
            taken = new long[count];
        }

        void receive(byte[] payload) {
            taken[received++] = System.nanoTime() - ByteBuffer.wrap(payload).getLong();
        }

        void print(double seconds) {
            long[] warm = Arrays.copyOfRange(taken, taken.length / WARM_UP_SHARE, taken.length);
            Arrays.sort(warm);
            Load.print(taken.length, seconds, percentile(warm, 0.5), percentile(warm, 0.99), percentile(warm, 0.999));
        }

        private static double percentile(long[] sorted, double share) {
            return sorted[(int) (share * (sorted.length - 1))] / 1e3;
        }
    }

    static void print(long messages, double seconds) {
        print(messages, seconds, 0, 0, 0);
    }

    private static void print(long messages, double seconds, double p50, double p99, double p999) {
        String line = "{\"messages\": %d, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}%n";
        System.out.printf(Locale.ROOT, line, messages, seconds, p50, p99, p999);
        System.out.flush();
    }
}
