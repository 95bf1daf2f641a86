// node-postgres: types, parameters, prepared statements, cursors, a pool.

import pg from "pg";
import Cursor from "pg-cursor";

const client = new pg.Client();
await client.connect();

async function check(name, ask) {
  console.log(`== ${name}`);
  try {
    const said = await ask();
    for (const row of Array.isArray(said) ? said : [said]) console.log(JSON.stringify(row));
  } catch (error) {
    console.log(`error: ${error.code ?? ""} ${error.message}`);
  }
}
const rows = async (text, values) => (await client.query({ text, values, rowMode: "array" })).rows;

await check("rows", () => rows("select * from things order by id"));
await check("columns", async () =>
  (await client.query("select * from things")).fields.map((f) => [f.name, f.dataTypeID, f.dataTypeSize, f.dataTypeModifier]));
await check("rows as objects", async () => (await client.query("select id, name from things where id = 1")).rows);
for (const [name, value, column] of [["integer", 2, "id"], ["text", "pen", "name"], ["decimal", "-3.99", "price"], ["double", 2.25, "f8"],
  ["date", "2024-02-29", "day"], ["bytes", Buffer.from([0, 1, 255]), "bytes"], ["boolean", true, "flag"],
  ["instant", new Date("2038-01-19T03:14:07Z"), "moment"]]) {
  await check(`parameter: ${name}`, () => rows(`select id from things where ${column} = $1 order by id`, [value]));
}
await check("an array as parameter", () => rows("select id from things where id = any($1) order by id", [[1, 4]]));
await check("an array comes back", () => rows("select array_agg(who order by who), array[1, 2, null]::int[] from visits"));
await check("json comes back", () => rows(`select '{"a": [1]}'::json`));
await check("interval comes back", () => rows("select interval '1 month 2 days 03:04:05'"));
await check("a statement with a name", async () => {
  const found = [];
  for (const id of [1, 2]) found.push((await client.query({ name: "by id", text: "select name from things where id = $1", values: [id] })).rows[0]);
  return found;
});
await check("several statements", async () => (await client.query("select 1 as a; select 2 as b")).map((r) => r.rows));
await check("a cursor", async () => {
  const cursor = client.query(new Cursor("select id from things order by id"));
  const parts = [await cursor.read(2), await cursor.read(5)];
  await cursor.close();
  return parts;
});
await check("a transaction that is rolled back", async () => {
  await client.query("begin");
  await client.query("insert into notes values (90, 'x')");
  await client.query("rollback");
  return rows("select count(*) from notes where line = 90");
});
await check("insert: rowCount", async () => (await client.query("insert into notes values ($1, $2), (92, null)", [91, "y"])).rowCount);
await check("SQLSTATE", () => rows("select 1 / (id - 1) from things where id = 1"));
await check("a pool", async () => {
  const pool = new pg.Pool({ max: 3 });
  const all = await Promise.all([1, 2, 3, 4].map((n) => pool.query("select $1::int as n", [n])));
  await pool.end();
  return all.map((r) => r.rows[0].n);
});
await client.end();
