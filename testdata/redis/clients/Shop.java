import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/** What a service does with Jedis: java -cp 'JARS/*' Shop.java PORT */
class Shop {
    public static void main(String[] arguments) {
        int port = Integer.parseInt(arguments[0]);
        try (JedisPooled pool = new JedisPooled("127.0.0.1", port)) {
            pool.flushAll();
            carts(pool);
            scans(pool);
            stock(pool, port);
        }
        System.out.println("Jedis: hashes, expiry, scans, pipelines and transactions of four threads");
    }

    static void carts(JedisPooled pool) {
        check(pool.hset("cart:1", Map.of("apple", "2", "pear", "1")), 2L);
        check(pool.hincrBy("cart:1", "apple", 3), 5L);
        check(pool.hgetAll("cart:1"), Map.of("apple", "5", "pear", "1"));
        check(pool.expire("cart:1", 60), 1L);
        check(pool.set("lock", "me", SetParams.setParams().nx().px(60000)), "OK");
        check(pool.set("lock", "you", SetParams.setParams().nx().px(60000)), null);
        check(pool.mget("lock", "none"), java.util.Arrays.asList("me", null));
        try {
            pool.get("cart:1");
            throw new AssertionError("a hash is no string");
        } catch (JedisDataException error) {
            check(error.getMessage().startsWith("WRONGTYPE"), true);
        }
    }

    static void scans(JedisPooled pool) {
        try (Pipeline pipeline = (Pipeline) pool.pipelined()) {
            List<Response<String>> replies =
                IntStream.range(0, 2000).mapToObj(i -> pipeline.set("item:" + i, "x")).toList();
            pipeline.sync();
            replies.forEach(reply -> check(reply.get(), "OK"));
        }
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            var page = pool.scan(cursor, new ScanParams().match("item:*").count(100));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        check(found.size(), 2000);
    }

    /** Four threads take one piece after the other, by WATCH, MULTI and EXEC: the pieces are 200. */
    static void stock(JedisPooled pool, int port) {
        pool.set("stock", "200");
        var buyers = IntStream.range(0, 4).mapToObj(i -> CompletableFuture.supplyAsync(() -> buy(port))).toList();
        check(buyers.stream().mapToInt(CompletableFuture::join).sum(), 200);
        check(pool.get("stock"), "0");
    }

    static int buy(int port) {
        int bought = 0;
        try (Jedis jedis = new Jedis("127.0.0.1", port)) {
            while (true) {
                jedis.watch("stock");
                if (Integer.parseInt(jedis.get("stock")) == 0) {
                    return bought;
                }
                Transaction transaction = jedis.multi();
                transaction.decr("stock");
                if (transaction.exec() != null) {
                    bought++;
                }
            }
        }
    }

    static void check(Object got, Object expected) {
        if (!java.util.Objects.equals(got, expected)) {
            throw new AssertionError("got " + got + " in place of " + expected);
        }
    }
}
