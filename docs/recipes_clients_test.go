//go:build clients

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// kitchen is a reader with the real libraries, which make test-clients brings.
type kitchen struct {
	*reader

	python string
}

func newKitchen(t *testing.T) *kitchen {
	t.Helper()
	folder := os.Getenv("EMBEDSIDECAR_CLIENTS")
	if folder == "" {
		t.Fatal("EMBEDSIDECAR_CLIENTS names no folder: make test-clients does")
	}
	k := &kitchen{newReader(t), filepath.Join(folder, "venv", "bin") + string(os.PathListSeparator)}
	clients, err := filepath.Abs("../dist/clients")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "node", "node_modules"), filepath.Join(k.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	url, token := k.serving()
	path := os.Getenv("PATH")
	for i, v := range k.vars {
		if name, value, _ := strings.Cut(v, "="); name == "PATH" {
			path = value
			k.vars[i] = "PATH=" + k.python + filepath.Join(k.dir, "node_modules", ".bin") + string(os.PathListSeparator) + path
		}
	}
	k.vars = append(k.vars, "DATABASE_URL="+k.db.URL(testenv.Owner), "EMBEDSIDECAR_URL="+url, "EMBEDSIDECAR_TOKEN="+token,
		"PYTHONPATH=.:"+filepath.Join(clients, "python"), "CLIENTS="+clients, "PYTHONDONTWRITEBYTECODE=1")
	return k
}

// write puts files into the folder.
func (k *kitchen) write(files map[string]string) {
	k.t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
}

// recipe is the block of recipes.md with these words.
func (k *kitchen) recipe(language, words string) string {
	k.t.Helper()
	for _, block := range blocks(read(k.t, "recipes.md"), language) {
		if strings.Contains(block, words) {
			return block
		}
	}
	k.t.Fatalf("recipes.md has no block in %s with %q", language, words)
	return ""
}

// TestClients_Alembic: autogenerate finds what changed in the models, and nothing of ours, also of a column with its
// index in the source table.
func TestClients_Alembic(t *testing.T) {
	t.Parallel()
	k := newKitchen(t)
	k.db.MustExec("ALTER TABLE docs ADD embedding vector(3), ADD gone int; CREATE INDEX ON docs USING hnsw (embedding vector_cosine_ops)")
	k.write(map[string]string{
		"models.py": `from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, Table, Text
metadata = MetaData()
Table("docs", metadata, Column("id", BigInteger, primary_key=True), Column("title", Text), Column("body", Text),
    Column("status", Text), Column("tenant", Integer), Column("deleted_at", DateTime(timezone=True)), Column("fresh", Text))
`, "filter.py": k.recipe("python", "include_object"),
		"try.py": `import os
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from models import metadata
from filter import include_object
engine = create_engine(os.environ["DATABASE_URL"].replace("postgres://", "postgresql+psycopg://"))
def found(**options):
    with engine.connect() as c:
        return sorted((d[0], getattr(d[-1], "name", "")) for d in compare_metadata(
            MigrationContext.configure(c, opts={"include_schemas": True, **options}), metadata))
assert ("remove_table", "docs_embedding") in found(), found()
kept = found(include_object=include_object)
assert kept == [("add_column", "fresh"), ("remove_column", "gone")], kept
`,
	})
	k.sh("python3 -W ignore try.py")
}

// TestClients_Drizzle: a push changes what the schema says, leaves our table alone, and a query with a filter finds rows.
func TestClients_Drizzle(t *testing.T) {
	t.Parallel()
	k := newKitchen(t)
	k.write(map[string]string{
		"drizzle.config.ts": k.recipe("ts", "drizzle-kit"), "recipe.mjs": k.recipe("js", "drizzle-orm"),
		"schema.ts": `import { bigint, integer, pgTable, text, timestamp } from "drizzle-orm/pg-core";
export const docs = pgTable("docs", { id: bigint({ mode: "number" }).primaryKey(), title: text(), body: text(), status: text(),
  tenant: integer(), deleted_at: timestamp({ withTimezone: true }), fresh: text() });
`, "try.mjs": `import { db, search } from "./recipe.mjs";
const rows = await search("reset", 3, { status: "published", tenant: 4 });
if (rows.length !== 3 || !rows.every((r) => Number(r.id) % 10 === 4)) throw new Error(JSON.stringify(rows));
await db.$client.end();
`,
	})
	k.sh("drizzle-kit push --force && node try.mjs")
	if !testenv.Value[bool](k.db, `SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'docs'::regclass AND attname = 'fresh')
		AND (SELECT count(*) FROM docs_embedding) = 60`) {
		t.Error("the push did not do what it should")
	}
}

// TestClients_Prisma: a raw query of a generated client. The engine of migrations, which is a download of its own, is
// not used.
func TestClients_Prisma(t *testing.T) {
	t.Parallel()
	k := newKitchen(t)
	k.write(map[string]string{
		"recipe.mjs": k.recipe("js", "PrismaPg"),
		"schema.prisma": `generator client {
  provider = "prisma-client-js"
}
datasource db {
  provider = "postgresql"
}
model docs {
  id BigInt @id
  title String?
}
`, "prisma.config.mjs": `export default { schema: "schema.prisma", datasource: { url: process.env.DATABASE_URL } };
`, "try.mjs": `import { prisma, search } from "./recipe.mjs";
const rows = await search("reset", 3, { status: "published", tenant: 4 });
if (rows.length !== 3 || !rows.every((r) => Number(r.id) % 10 === 4)) throw new Error(rows.map((r) => r.title).join());
if ((await prisma.docs.count()) !== 60) throw new Error("not all rows");
await prisma.$disconnect();
`,
	})
	k.sh("PRISMA_SCHEMA_ENGINE_BINARY=/bin/true prisma generate --config prisma.config.mjs && node try.mjs")
}

// TestClients_LlamaIndex: a retriever finds rows, and says why where it cannot.
func TestClients_LlamaIndex(t *testing.T) {
	t.Parallel()
	k := newKitchen(t)
	k.write(map[string]string{
		"recipe.py": k.recipe("python", "BaseRetriever"),
		"try.py": `from recipe import Rows
found = Rows("public.docs", k=3).retrieve("reset")
assert len(found) == 3 and all("Password" in n.text and n.metadata["id"] and n.score <= 1 for n in found), found
assert [n.score for n in found] == sorted((n.score for n in found), reverse=True)
`,
	})
	k.sh("python3 try.py")
}

// TestClients_VercelAI: a language model, which is a made-up one, calls the tool; the provider embeds a text.
func TestClients_VercelAI(t *testing.T) {
	t.Parallel()
	k := newKitchen(t)
	k.write(map[string]string{
		"recipe.mjs": k.recipe("js", "createOpenAICompatible"),
		"try.mjs": `import { embed, generateText } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { embedsidecar, searchDocs } from "./recipe.mjs";
const { embedding } = await embed({ model: embedsidecar.textEmbeddingModel("fake"), value: "a question" });
if (embedding.length !== 64) throw new Error(embedding.length);
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const model = new MockLanguageModelV3({ doGenerate: async () => ({ finishReason: { unified: "tool-calls" }, usage, warnings: [], content: [
  { type: "tool-call", toolCallId: "1", toolName: "searchDocs", input: JSON.stringify({ text: "reset", k: 3 }) }] }) });
const { toolResults } = await generateText({ model, prompt: "how do I reset it?", tools: { searchDocs } });
if (toolResults.length !== 1 || toolResults[0].output.length !== 3) throw new Error(JSON.stringify(toolResults));
`,
	})
	k.sh("node try.mjs")
}

// TestClients_Generated: what the generators make of the OpenAPI document compiles, and searches.
func TestClients_Generated(t *testing.T) {
	t.Parallel()
	k := newKitchen(t)
	k.write(map[string]string{
		"recipe.ts": k.recipe("ts", "openapi-fetch"), "recipe.py": k.recipe("python", "AuthenticatedClient"),
		"package.json": `{"type": "module"}`,
		"wrong.ts": `import { api } from "./recipe.js";
await api.POST("/v1/pipelines/{name}/search", { params: { path: { name: "public.docs" } }, body: { txt: "reset" } });
`, "try.ts": `import { search } from "./recipe.js";
const rows = await search("public.docs", "reset");
if (rows?.length !== 3 || typeof rows[0].distance !== "number") throw new Error(JSON.stringify(rows));
`,
	})
	const tsc = "tsc --strict --skipLibCheck --module nodenext --target es2022 --lib es2022,dom "
	k.sh(`cp "$CLIENTS/typescript/embedsidecar.d.ts" . && sed -i 's/process.env/(globalThis as any).process.env/' recipe.ts && ` +
		tsc + "try.ts && node try.js && ! " + tsc + "--noEmit wrong.ts")
	k.has(k.sh("python3 recipe.py"), "('")
}
