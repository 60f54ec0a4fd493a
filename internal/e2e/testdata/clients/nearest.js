// Reads the nearest rows as an application with node-postgres does, through the pooler.
const { Client } = require("pg");

(async () => {
  const client = new Client({ host: "127.0.0.1", port: Number(process.env.APP_PORT), user: "app", database: process.env.APP_DATABASE });
  await client.connect();
  const vector = "[" + Array(8).fill(1).join(",") + "]";
  const column = await client.query("SELECT id, embedding FROM shop_article WHERE embedding IS NOT NULL ORDER BY embedding <=> $1 LIMIT 3", [vector]);
  const table = await client.query("SELECT n.id, e.embedding FROM shop_note AS n JOIN shop_note_embedding AS e USING (id) ORDER BY e.embedding <=> $1 LIMIT 3", [vector]);
  for (const row of [...column.rows, ...table.rows]) {
    if (JSON.parse(row.embedding).length !== 8) throw new Error("a vector " + row.embedding);
  }
  if (column.rows.length !== 3 || table.rows.length !== 3) throw new Error(`${column.rows.length} and ${table.rows.length} rows`);
  await client.end();
})().catch((error) => { console.error(error); process.exit(1); });
