//go:build clients

package docs

import (
	"os"
	"path/filepath"
	"testing"
)

// TestClients_LangChain: documents that the real library has stored are taken over, one that is added by SQL is
// embedded, and the library finds it by its own search.
func TestClients_LangChain(t *testing.T) {
	t.Parallel()
	k := newKitchen(t)
	k.db.MustExecSuper("ALTER DATABASE " + k.db.Name + " SET datestyle = 'ISO, MDY'") // psycopg reads no other
	k.write(map[string]string{
		"store.py": `import os
from langchain_openai import OpenAIEmbeddings
from langchain_postgres import PGVector
store = PGVector(
    OpenAIEmbeddings(model="fake", base_url=os.environ["EMBEDSIDECAR_URL"] + "/v1", api_key=os.environ["EMBEDSIDECAR_TOKEN"],
                     check_embedding_ctx_length=False),
    connection=os.environ["DATABASE_URL"].replace("postgres://", "postgresql+psycopg://"), collection_name="notes")
`, "add.py": `from store import store
store.add_texts([f"note {i} of the harbour" for i in range(20)], ids=[f"n{i}" for i in range(20)])
`, "find.py": `from store import store
found = store.similarity_search("the lighthouse is painted white", k=1)
assert [d.page_content for d in found] == ["the lighthouse is painted white"], found
assert len(store.similarity_search("a harbour", k=30)) == 21
`,
	})
	python := filepath.Join(os.Getenv("EMBEDSIDECAR_CLIENTS"), "langchain", "bin", "python3") + " -W ignore "
	k.sh(python + "add.py")
	k.sh("embedsidecar import langchain --model fake --save langchain.yaml")
	k.db.MustExec(`INSERT INTO langchain_pg_embedding (id, collection_id, document, cmetadata)
		SELECT 'new', uuid, 'the lighthouse is painted white', '{}' FROM langchain_pg_collection`)
	k.sh("embedsidecar wait --caught-up --timeout 4m")
	k.sh(python + "find.py")
}
