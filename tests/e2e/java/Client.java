import java.util.*;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/**
 * Jedis as its users write it, against a store on the port given. Prints a line for each part that held; the parts are
 * named by what the store must have for them. After "reconnect" it waits for a line on standard input, while the store is
 * replaced by another one on the same port. Jedis caches only beside servers that call themselves Redis 7.4 or later, so
 * client-side caching is no part here.
 */
public class Client {
    interface Part {
        void run() throws Exception;
    }

    static int port;
    static RedisProtocol protocol;
    static RedisClient client;

    static void same(Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) {
            throw new AssertionError("wanted " + wanted + ", found " + found);
        }
    }

    static DefaultJedisClientConfig config() {
        return DefaultJedisClientConfig.builder().protocol(protocol).build();
    }

    static void strings() {
        same("OK", client.set("greeting", "héllo"));
        same("héllo", client.get("greeting"));
        same(null, client.set("greeting", "x", SetParams.setParams().nx()));
        same(42L, client.incrBy("count", 42));
        same(Arrays.asList("42", null), client.mget("count", "none"));
        same("OK", client.mset("a", "1", "b", "2"));
        String longValue = "v".repeat(1_000_000);
        client.set("long", longValue);
        same(longValue, client.get("long"));
        same(1L, client.del("long", "none"));
    }

    static void expiry() throws Exception {
        client.psetex("fleeting", 30, "x");
        while (client.exists("fleeting")) {
            Thread.sleep(5);
        }
        client.set("lasting", "x");
        same(1L, client.expire("lasting", 100));
        same(true, client.ttl("lasting") > 90);
        same(1L, client.persist("lasting"));
        same(-1L, client.ttl("lasting"));
    }

    static void pipeline() {
        List<Response<String>> values = new ArrayList<>();
        try (AbstractPipeline pipeline = client.pipelined()) {
            for (int number = 0; number < 2000; number++) {
                pipeline.set("p:" + number, "" + number);
            }
            for (int number = 0; number < 2000; number++) {
                values.add(pipeline.get("p:" + number));
            }
            pipeline.sync();
        }
        for (int number = 0; number < 2000; number++) {
            same("" + number, values.get(number).get());
        }
    }

    static void scan() {
        Set<String> found = new HashSet<>();
        ScanParams params = new ScanParams().match("p:*").count(100);
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            var page = client.scan(cursor, params);
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        same(2000, found.size());
    }

    static void hashes() {
        same(2L, client.hset("h", Map.of("name", "tier", "size", "3")));
        same("tier", client.hget("h", "name"));
        same(Map.of("name", "tier", "size", "3"), client.hgetAll("h"));
        same(7L, client.hincrBy("h", "size", 4));
        same(1L, client.hdel("h", "name", "none"));
        same(1L, client.hlen("h"));
    }

    static void transactions() {
        try (AbstractTransaction transaction = client.multi()) {
            transaction.set("m", "1");
            transaction.incr("m");
            transaction.get("m");
            same(Arrays.asList("OK", 2L, "2"), transaction.exec());
        }
        try (AbstractTransaction transaction = client.transaction(false)) {
            transaction.watch("m");
            client.set("m", "9");
            transaction.multi();
            transaction.incr("m");
            same(null, transaction.exec());
        }
        same("9", client.get("m"));
    }

    static void messages() throws Exception {
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onMessage(String channel, String message) {
                heard.add(channel + ":" + message);
                unsubscribe();
            }
        };
        Thread thread = new Thread(() -> client.subscribe(listener, "news"));
        thread.start();
        while (client.publish("news", "hi") == 0) {
            Thread.sleep(5);
        }
        thread.join();
        same(List.of("news:hi"), heard);
    }

    static void reconnect() throws Exception {
        System.out.println("reconnect");
        System.in.read();
        for (;;) {
            try {
                client.set("after", "all");
                break;
            } catch (JedisConnectionException error) {
                // One of the pool's connections to the store that is gone.
            }
        }
        same("all", client.get("after"));
        System.out.println("reconnected");
    }

    public static void main(String[] arguments) throws Exception {
        port = Integer.parseInt(arguments[0]);
        protocol = arguments[1].equals("3") ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
        client = RedisClient.builder().hostAndPort("127.0.0.1", port).clientConfig(config()).build();
        Set<String> commands = new HashSet<>();
        try (Jedis one = new Jedis("127.0.0.1", port)) {
            commands.addAll(one.commandList());
        }
        Map<String, Part> parts = new LinkedHashMap<>();
        parts.put("set", Client::strings);
        parts.put("expire", Client::expiry);
        parts.put("mget", Client::pipeline);
        parts.put("scan", Client::scan);
        parts.put("hset", Client::hashes);
        parts.put("multi", Client::transactions);
        parts.put("subscribe", Client::messages);
        for (var part : parts.entrySet()) {
            if (commands.contains(part.getKey())) {
                part.getValue().run();
                System.out.println(part.getKey());
            }
        }
        reconnect();
        client.close();
    }
}
