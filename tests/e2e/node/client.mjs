// node-redis as its users write it, against a store on the port given. Prints a line for each part that held; the parts
// are named by what the store must have for them. After "reconnect" it waits for a line on standard input, while the
// store is replaced by another one on the same port.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createClient } from "redis";

const [port, protocol] = process.argv.slice(2).map(Number);
const options = {
  RESP: protocol,
  socket: { port, host: "127.0.0.1", reconnectStrategy: () => 50 },
};

async function connect(more = {}) {
  const client = createClient({ ...options, ...more });
  client.on("error", () => {}); // It reconnects by itself; what it was asked meanwhile waits.
  return client.connect();
}

const client = await connect();
const commands = new Set((await client.sendCommand(["COMMAND", "LIST"])).map((name) => name.toLowerCase()));

const parts = {
  async set() {
    assert.equal(await client.set("greeting", "héllo"), "OK");
    assert.equal(await client.get("greeting"), "héllo");
    assert.equal(await client.set("greeting", "x", { condition: "NX" }), null);
    assert.equal(await client.incrBy("count", 41), 41);
    assert.equal(await client.incr("count"), 42);
    assert.deepEqual(await client.mGet(["count", "none"]), ["42", null]);
    assert.equal(await client.append("greeting", "!"), 7);
    const long = "v".repeat(1_000_000);
    await client.set("long", long);
    assert.equal(await client.get("long"), long);
    assert.equal(await client.del(["long", "none"]), 1);
  },
  async expire() {
    await client.set("fleeting", "x", { expiration: { type: "PX", value: 30 } });
    while ((await client.get("fleeting")) !== null) await new Promise((done) => setTimeout(done, 5));
    await client.set("lasting", "x");
    assert.equal(await client.expire("lasting", 100), 1);
    assert.ok((await client.ttl("lasting")) > 90);
    assert.equal(await client.persist("lasting"), 1);
    assert.equal(await client.ttl("lasting"), -1);
  },
  async mget() {
    // What is asked in one turn of the event loop goes out as one pipeline.
    const numbers = [...Array(2000).keys()];
    await Promise.all(numbers.map((number) => client.set(`p:${number}`, String(number))));
    const values = await Promise.all(numbers.map((number) => client.get(`p:${number}`)));
    assert.deepEqual(values, numbers.map(String));
  },
  async scan() {
    const found = new Set();
    for await (const keys of client.scanIterator({ MATCH: "p:*", COUNT: 100 })) keys.forEach((key) => found.add(key));
    assert.equal(found.size, 2000);
  },
  async hello() {
    const told = await client.sendCommand(["HELLO", String(protocol)]);
    const proto = protocol === 3 ? told.proto : told[told.indexOf("proto") + 1];
    assert.equal(proto, protocol);
  },
  async hset() {
    assert.equal(await client.hSet("h", { name: "tier", size: "3" }), 2);
    assert.equal(await client.hGet("h", "name"), "tier");
    assert.deepEqual({ ...(await client.hGetAll("h")) }, { name: "tier", size: "3" });
    assert.equal(await client.hIncrBy("h", "size", 4), 7);
    assert.equal(await client.hDel("h", ["name", "none"]), 1);
    assert.equal(await client.hLen("h"), 1);
  },
  async multi() {
    const replies = await client.multi().set("m", "1").incr("m").get("m").exec();
    assert.deepEqual(replies, ["OK", 2, "2"]);
    const watcher = await connect();
    await watcher.watch("m");
    await client.set("m", "9");
    await assert.rejects(watcher.multi().incr("m").exec());
    assert.equal(await client.get("m"), "9");
    watcher.destroy();
  },
  async subscribe() {
    const subscriber = await connect();
    const heard = [];
    await subscriber.subscribe("news", (message) => heard.push(message));
    await subscriber.pSubscribe("n*", (message, channel) => heard.push(`${channel}:${message}`));
    assert.equal(await client.publish("news", "hi"), 2);
    while (heard.length < 2) await new Promise((done) => setTimeout(done, 5));
    assert.deepEqual(heard.sort(), ["hi", "news:hi"]);
    await subscriber.unsubscribe("news");
    assert.equal(await client.publish("news", "again"), 1);
    subscriber.destroy();
  },
  async tracking() {
    if (protocol !== 3) return;
    const cached = await connect({ clientSideCache: { ttl: 0, maxEntries: 100 } });
    await client.set("t", "old");
    assert.equal(await cached.get("t"), "old");
    await client.set("t", "new");
    while ((await cached.get("t")) !== "new") await new Promise((done) => setTimeout(done, 5));
    cached.destroy();
  },
};

for (const [name, part] of Object.entries(parts)) {
  if (commands.has(name) || (name === "tracking" && commands.has("client|tracking"))) {
    await part();
    console.log(name);
  }
}
console.log("reconnect");
await once(process.stdin, "data");
await client.set("after", "all");
assert.equal(await client.get("after"), "all");
console.log("reconnected");
client.destroy();
process.stdin.destroy();
