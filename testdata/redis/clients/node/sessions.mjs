// A shop in Express whose sessions are kept by connect-redis, in two processes, over RESP3: node sessions.mjs PORT
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { RedisStore } from "connect-redis";
import express from "express";
import session from "express-session";
import { createClient } from "redis";

const [, script, port, cookie] = process.argv;
const client = createClient({ RESP: 3, name: "shop", socket: { host: "127.0.0.1", port: Number(port) } });
client.on("error", (error) => { throw error; });
await client.connect();

const app = express();
const store = new RedisStore({ client, ttl: 600 });
app.use(session({ store, secret: "not one", resave: false, saveUninitialized: false }));
app.post("/cart/:item", (request, response) => {
  const cart = (request.session.cart ??= {});
  cart[request.params.item] = (cart[request.params.item] ?? 0) + 1;
  response.json(cart);
});
app.get("/cart", (request, response) => response.json(request.session.cart ?? {}));
app.post("/leave", (request, response) => request.session.destroy(() => response.json({})));
const server = await new Promise((resolve) => {
  const listening = app.listen(0, "127.0.0.1", () => resolve(listening));
});
const url = `http://127.0.0.1:${server.address().port}`;

async function leave() {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await client.close();
}

/** A browser, which keeps its cookie. */
function browser(cookie) {
  return async (method, path) => {
    const response = await fetch(url + path, { method, headers: cookie ? { cookie } : {} });
    assert.equal(response.status, 200);
    cookie = response.headers.getSetCookie()[0]?.split(";")[0] ?? cookie;
    return { cookie, json: await response.json() };
  };
}

if (cookie) {
  // The web server's other process sees the cart of the same cookie.
  console.log(JSON.stringify((await browser(cookie)("GET", "/cart")).json));
  await leave();
  process.exit();
}

await client.flushAll();
const [ada, bob] = [browser(), browser()];
for (const item of ["apple", "pear", "apple"]) await ada("POST", `/cart/${item}`);
await bob("POST", "/cart/plum");
const shown = await ada("GET", "/cart");
assert.deepEqual(shown.json, { apple: 2, pear: 1 });
assert.deepEqual((await bob("GET", "/cart")).json, { plum: 1 });

const id = decodeURIComponent(shown.cookie).replace(/^connect\.sid=s:([^.]+)\..*$/, "$1");
assert.deepEqual(JSON.parse(await client.get(`sess:${id}`)).cart, { apple: 2, pear: 1 });
const ttl = await client.ttl(`sess:${id}`);
assert.ok(ttl > 0 && ttl <= 600);
assert.equal((await store.ids()).length, 2);
assert.equal(await store.length(), 2);
const other = execFileSync(process.execPath, [script, port, shown.cookie], { encoding: "utf8" });
assert.deepEqual(JSON.parse(other), { apple: 2, pear: 1 });

// Commands that are sent together, maps of RESP3, a scan and a transaction by the same client.
assert.equal(await client.clientGetName(), "shop");
await Promise.all(Array.from({ length: 500 }, (_, i) => client.hSet(`item:${i}`, { name: `item ${i}`, stock: i })));
assert.deepEqual({ ...(await client.hGetAll("item:7")) }, { name: "item 7", stock: "7" });
const keys = [];
for await (const some of client.scanIterator({ MATCH: "item:*", COUNT: 50 })) keys.push(...some);
assert.equal(new Set(keys).size, 500);
assert.deepEqual(await client.multi().incr("orders").incrBy("orders", 4).get("orders").exec(), [1, 5, "5"]);

await ada("POST", "/leave");
assert.equal(await client.get(`sess:${id}`), null);
assert.deepEqual((await ada("GET", "/cart")).json, {});
const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")).version;
console.log(`Express ${version("express")} with connect-redis ${version("connect-redis")} and node-redis ` +
  `${version("redis")}: sessions of two browsers and processes, over RESP3`);
await leave();
