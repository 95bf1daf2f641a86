import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;

/**
 * Clients by JDBC, for `doors_driver.py`: requests and answers are lines with fields that tabs separate.
 *
 * <pre>
 * version  KIND                                     ok VERSION
 * fetch    URL DIGEST(0|1) STATEMENT                ok MS ROWS DIGEST
 * small    URL CLIENTS SECONDS KEYS STATEMENT       ok COUNT SECONDS P50_MS P99_MS
 * </pre>
 *
 * An error is answered with "error" and its message. The digest is that of `digest.py`.
 */
public class Doors {
    /** Rows that a client takes at a time. */
    static final int PART_ROWS = 10_000;

    static final long FOLD = 0x9E3779B97F4A7C15L;

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String answer;
            try {
                answer = "ok\t" + answer(line.split("\t"));
            } catch (Exception error) {
                answer = "error\t" + String.valueOf(error).replaceAll("\\s+", " ");
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    static String answer(String[] request) throws Exception {
        switch (request[0]) {
            case "version":
                Driver driver = DriverManager.getDriver("jdbc:" + request[1] + "://127.0.0.1:1/");
                return driver.getMajorVersion() + "." + driver.getMinorVersion();
            case "fetch":
                return fetch(request[1], request[2].equals("1"), request[3]);
            case "small":
                int clients = Integer.parseInt(request[2]);
                double seconds = Double.parseDouble(request[3]);
                return small(request[1], clients, seconds, Integer.parseInt(request[4]), request[5]);
            default:
                throw new IllegalArgumentException("no request: " + request[0]);
        }
    }

    static String fetch(String url, boolean hasDigest, String sql) throws Exception {
        try (Connection connection = DriverManager.getConnection(url)) {
            boolean isPostgres = url.startsWith("jdbc:postgresql:");
            if (isPostgres) {
                // Rows come in parts only within a transaction.
                connection.setAutoCommit(false);
            }
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                if (isPostgres) {
                    statement.setFetchSize(PART_ROWS);
                    // Values come in binary form from a statement that the server has prepared.
                    statement.unwrap(org.postgresql.PGStatement.class).setPrepareThreshold(-1);
                }
                long start = System.nanoTime();
                long rows = 0;
                long sum = 0;
                try (ResultSet result = statement.executeQuery()) {
                    boolean[] isText = texts(result);
                    while (result.next()) {
                        rows++;
                        long hash = row(result, isText);
                        if (hasDigest) {
                            sum += mixed(hash);
                        }
                    }
                }
                double ms = (System.nanoTime() - start) / 1e6;
                return ms + "\t" + rows + "\t" + String.format("%016x", sum);
            }
        }
    }

    static boolean[] texts(ResultSet result) throws Exception {
        boolean[] isText = new boolean[result.getMetaData().getColumnCount()];
        for (int column = 0; column < isText.length; column++) {
            int type = result.getMetaData().getColumnType(column + 1);
            isText[column] = type == Types.VARCHAR || type == Types.LONGVARCHAR || type == Types.CHAR;
        }
        return isText;
    }

    /** Takes the values of a row, and returns what the digest of the row is made of. */
    static long row(ResultSet result, boolean[] isText) throws Exception {
        long hash = 0;
        for (int column = 0; column < isText.length; column++) {
            if (isText[column]) {
                hash = text(hash, result.getString(column + 1).getBytes(StandardCharsets.UTF_8));
            } else {
                hash = hash * FOLD + result.getLong(column + 1);
            }
        }
        return hash;
    }

    static long text(long hash, byte[] bytes) {
        for (int start = 0; start < bytes.length; start += 8) {
            long word = 0;
            for (int at = Math.min(bytes.length, start + 8) - 1; at >= start; at--) {
                word = word << 8 | (bytes[at] & 0xFF);
            }
            hash = hash * FOLD + word;
        }
        return hash * FOLD + bytes.length;
    }

    static long mixed(long hash) {
        for (long factor : new long[] {0xFF51AFD7ED558CCDL, 0xC4CEB9FE1A85EC53L}) {
            hash = (hash ^ (hash >>> 33)) * factor;
        }
        return hash ^ (hash >>> 33);
    }

    static String small(String url, int clients, double seconds, int keys, String sql) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(clients);
        CyclicBarrier barrier = new CyclicBarrier(clients);
        List<Future<long[]>> futures = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            int seed = number;
            futures.add(threads.submit(() -> client(url, seed, barrier, seconds, keys, sql)));
        }
        LongStream all = LongStream.empty();
        try {
            for (Future<long[]> future : futures) {
                all = LongStream.concat(all, LongStream.of(future.get()));
            }
        } catch (ExecutionException error) {
            throw new Exception(String.valueOf(error.getCause()));
        } finally {
            threads.shutdownNow();
        }
        long[] latencies = all.sorted().toArray();
        double p50 = latencies[latencies.length / 2] / 1e6;
        double p99 = latencies[Math.min(latencies.length - 1, (int) (0.99 * latencies.length))] / 1e6;
        return latencies.length + "\t" + seconds + "\t" + p50 + "\t" + p99;
    }

    /** Returns the latencies of a client's statements, in nanoseconds. */
    static long[] client(String url, int seed, CyclicBarrier barrier, double seconds, int keys, String sql)
            throws Exception {
        try (Connection connection = DriverManager.getConnection(url);
                PreparedStatement statement = connection.prepareStatement(sql)) {
            // The driver prepares a statement at the server when it runs for the fifth time.
            for (int time = 0; time < 8; time++) {
                run(statement, 1);
            }
            SplittableRandom random = new SplittableRandom(seed);
            LongStream.Builder latencies = LongStream.builder();
            barrier.await();
            long start = System.nanoTime();
            long end = start + (long) (seconds * 1e9);
            while (start < end) {
                run(statement, random.nextInt(1, keys + 1));
                long now = System.nanoTime();
                latencies.add(now - start);
                start = now;
            }
            return latencies.build().toArray();
        }
    }

    static void run(PreparedStatement statement, int key) throws Exception {
        statement.setInt(1, key);
        try (ResultSet result = statement.executeQuery()) {
            long expected = (long) key * 7919 % 100_003;
            if (!result.next() || result.getLong(1) != expected) {
                throw new IllegalStateException("the value of " + key + " is not " + expected);
            }
        }
    }
}
