package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgvector/pgvector-go"

	"github.com/embedsidecar/embedsidecar/embed/chunk"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// vectorOf returns the vector of a text as an SQL literal.
func vectorOf(text string) string { return pgvector.NewVector(vector.Of(text, 8)).String() }

// importing makes a stage with pgai, whose worker has finished.
func importing(t *testing.T) *stage {
	t.Helper()
	s := newStage(t, 0)
	s.db.MustExec("CREATE EXTENSION IF NOT EXISTS vector")
	s.db.MustExec("BEGIN; " + testenv.Pgai(t) + "; COMMIT")
	paragraph := strings.Repeat("words of a text that is long enough. ", 6)
	s.db.MustExec(`CREATE TABLE blog (id int PRIMARY KEY, title text, body text, author text);
		CREATE TABLE notes (id bigint PRIMARY KEY, body text); CREATE TABLE tags (id int PRIMARY KEY, name text);
		INSERT INTO notes SELECT i, 'note ' || i || E'\n' FROM generate_series(1, 30) AS i;
		INSERT INTO tags SELECT i, 'tag ' || i FROM generate_series(1, 20) AS i`)
	s.db.MustExec(`INSERT INTO blog SELECT i, 'title ' || i, i || ' ' || $1 || E'\n\n' || i || ' more ' || $1, 'me'
		FROM generate_series(1, 40) AS i`, paragraph)
	const rest = `, scheduling => ai.scheduling_none(), indexing => ai.indexing_none(), grant_to => NULL`
	s.db.MustExec(`SELECT ai.create_vectorizer('blog'::regclass, loading => ai.loading_column('body'),
		embedding => ai.embedding_openai('m', 8), formatting => ai.formatting_python_template('$title: $chunk'),
		chunking => ai.chunking_recursive_character_text_splitter(100, 30)` + rest + `);
		SELECT ai.create_vectorizer('notes'::regclass, loading => ai.loading_column('body'),
		embedding => ai.embedding_ollama('m', 8), chunking => ai.chunking_none()` + rest + `);
		SELECT ai.create_vectorizer('tags'::regclass, loading => ai.loading_column('name'),
		destination => ai.destination_column('vec'), embedding => ai.embedding_openai('m', 8),
		chunking => ai.chunking_none(), formatting => ai.formatting_python_template('a tag, $chunk!')` + rest + `);
		SELECT ai.create_vectorizer('tags'::regclass, loading => ai.loading_column('name'), name => 'by_pattern',
		destination => ai.destination_table('other'), embedding => ai.embedding_openai('m', 8),
		chunking => ai.chunking_character_text_splitter(100, 0, '\s', true)` + rest + `)`)
	for _, id := range testenv.Values[int](s.db, "SELECT id FROM blog ORDER BY id") {
		body := testenv.Value[string](s.db, "SELECT body FROM blog WHERE id = $1", id)
		title := testenv.Value[string](s.db, "SELECT title FROM blog WHERE id = $1", id)
		for no, c := range chunk.Cut(chunk.Settings{
			Strategy: chunk.Recursive, Characters: 100, Overlap: 30,
			Separators: []string{"\n\n", "\n", ".", "?", "!", " ", ""},
		}, chunk.Text{Text: body}, chunk.Text{}) {
			s.db.MustExec(`INSERT INTO blog_embedding_store (id, chunk_seq, chunk, embedding)
				VALUES ($1, $2, $3, $4::text::vector)`, id, no, c.Of(body), vectorOf(title+": "+c.Of(body)))
		}
	}
	for _, id := range testenv.Values[int](s.db, "SELECT id::int FROM notes") {
		body := testenv.Value[string](s.db, "SELECT body FROM notes WHERE id = $1", id)
		s.db.MustExec(`INSERT INTO notes_embedding_store (id, chunk_seq, chunk, embedding)
			VALUES ($1, 0, $2, $3::text::vector)`, id, body, vectorOf(body))
	}
	for _, id := range testenv.Values[int](s.db, "SELECT id FROM tags") {
		name := testenv.Value[string](s.db, "SELECT name FROM tags WHERE id = $1", id)
		s.db.MustExec("UPDATE tags SET vec = $2::text::vector WHERE id = $1", id, vectorOf("a tag, "+name+"!"))
	}
	s.db.MustExec("DELETE FROM ai._vectorizer_q_1; DELETE FROM ai._vectorizer_q_2; DELETE FROM ai._vectorizer_q_3")
	return s
}

// TestImport_PgaiGoesOnUnderItsNames: views and stores answer as before, nothing is embedded again, and later edits are
// followed.
func TestImport_PgaiGoesOnUnderItsNames(t *testing.T) {
	t.Parallel()
	s := importing(t)
	save := filepath.Join(t.TempDir(), "pgai.yaml")
	run := []string{"import", "pgai", "--model", "fake", "--save", save}
	s.db.MustExec(`INSERT INTO ai.vectorizer_worker_process (version, expected_heartbeat_interval)
		VALUES ('0.12.1', '1 hour')`)
	_, stderr := s.run(exitConflict, run...)
	s.has(stderr, "still works", "stop it")
	s.db.MustExec("DELETE FROM ai.vectorizer_worker_process")
	const answers = `SELECT md5(string_agg(v::text, '' ORDER BY v::text)) FROM blog_embedding AS v;
		SELECT md5(string_agg(v::text, '' ORDER BY v::text)) FROM notes_embedding AS v;
		SELECT md5(string_agg((embedding_uuid, id, chunk_seq, chunk, embedding)::text, '' ORDER BY embedding_uuid))
			FROM blog_embedding_store`
	before := s.answers(answers)
	// Row level security is carried over, or reported.
	const guards = `SELECT coalesce(array_to_string(reloptions, ', '), '') FROM pg_class WHERE oid = 'blog_embedding'::regclass`
	s.db.MustExec(`ALTER VIEW blog_embedding SET (security_barrier = true)`)
	if testenv.Value[int](s.db, `SELECT current_setting('server_version_num')::int`) >= 150000 {
		s.db.MustExec(`ALTER VIEW blog_embedding SET (security_invoker = true)`)
	}
	guarded, reader := s.answers(guards), s.db.Role("")
	s.db.MustExec(`GRANT SELECT ON blog, blog_embedding, blog_embedding_store TO ` + reader + `;
		ALTER TABLE notes_embedding_store ENABLE ROW LEVEL SECURITY`)
	stdout, _ := s.run(0, append(run, "--dry-run", "-o", "json")...)
	s.has(stdout, "regular expressions", "drop_vectorizer", `"dry_run": true`, "has row-level security, which a view")
	s.db.MustExec(`ALTER TABLE notes_embedding_store DISABLE ROW LEVEL SECURITY`)
	if _, err := os.Stat(save); err == nil {
		t.Error("a dry run wrote the configuration")
	}
	// A failure of one pipeline can be fixed and the import repeated; the others are already imported.
	s.db.MustExec("CREATE TABLE keeps (chunk uuid REFERENCES notes_embedding_store)")
	_, stderr = s.run(exitConflict, run...)
	s.has(stderr, "keeps")
	s.db.MustExec("DROP TABLE keeps")
	_, stderr = s.run(0, run...)
	s.has(stderr, "by_pattern is not carried over", "the configuration is in")
	if after := s.answers(answers); after != before {
		t.Error("views or stores answer otherwise than before")
	}
	if now := s.answers(guards); now != guarded {
		t.Errorf("the view has the options %q, want %q", now, guarded)
	}
	s.db.MustExecSuper(`SET ROLE ` + reader + `; SELECT FROM blog_embedding, blog_embedding_store; RESET ROLE`)
	s.run(0, "run", "--once", "--config", save)
	if n := s.embedded(); n != 0 {
		t.Errorf("%d rows were embedded", n)
	}
	if after := s.answers(answers); after != before {
		t.Error("views or stores answer otherwise after a run")
	}
	s.run(0, "verify", "--deep", "20")
	s.db.MustExec("UPDATE blog SET body = 'short now' WHERE id = 3; UPDATE tags SET name = 'new' WHERE id = 4")
	s.run(0, "run", "--once", "--config", save)
	got := testenv.Value[string](s.db, "SELECT string_agg(chunk, '|') FROM blog_embedding WHERE id = 3")
	if got != "short now" {
		t.Errorf("the view shows %q after an edit", got)
	}
	s.run(0, "verify", "--deep", "20")
	left := testenv.Values[string](s.db, `SELECT tgname::text FROM pg_trigger
		WHERE tgname LIKE '_vectorizer_src_trg_%' AND tgname NOT LIKE '%4%'`)
	if len(left) != 0 {
		t.Errorf("triggers are left: %v", left)
	}
	// The owner drops what could not be carried over; then nothing of pgai is left.
	s.db.MustExec("SELECT ai.drop_vectorizer('by_pattern', true)")
	s.run(0, run...)
	s.run(exitUsage, run...)
	if testenv.Value[bool](s.db, "SELECT to_regnamespace('ai') IS NOT NULL") {
		t.Error("the schema of pgai is left")
	}
}

// answers returns the results of an application's queries.
func (s *stage) answers(queries string) string {
	s.t.Helper()
	var b strings.Builder
	for sql := range strings.SplitSeq(queries, ";") {
		b.WriteString(testenv.Value[string](s.db, sql) + "\n")
	}
	return b.String()
}

func TestImport_LangChainsTableIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.db.MustExec(`CREATE EXTENSION IF NOT EXISTS vector;
		CREATE TABLE langchain_pg_collection (uuid uuid PRIMARY KEY, name varchar NOT NULL UNIQUE, cmetadata json);
		CREATE TABLE langchain_pg_embedding (id varchar PRIMARY KEY, collection_id uuid REFERENCES langchain_pg_collection
			ON DELETE CASCADE, embedding vector, document varchar, cmetadata jsonb);
		INSERT INTO langchain_pg_collection VALUES ('00000000-0000-0000-0000-000000000001', 'docs', NULL)`)
	for i := range 30 {
		text := strings.Repeat("document ", i+1)
		s.db.MustExec(`INSERT INTO langchain_pg_embedding
			VALUES ($1, '00000000-0000-0000-0000-000000000001', $2::text::vector, $3, '{}')`,
			string(rune('a'+i)), vectorOf(text), text)
	}
	save := filepath.Join(t.TempDir(), "langchain.yaml")
	_, stderr := s.run(exitUsage, "import", "langchain", "--save", save)
	s.has(stderr, "--model")
	run := []string{"import", "langchain", "--model", "fake", "--save", save}
	// A dry run finds that the slot is not ours; the name of the slot goes into the file.
	s.db.MustExec("SELECT pg_create_logical_replication_slot($1, 'test_decoding')", s.slot)
	_, stderr = s.run(exitConflict, append(run, "--dry-run")...)
	s.has(stderr, "was not imported")
	s.db.MustExec("SELECT pg_drop_replication_slot($1)", s.slot)
	s.run(0, run...)
	s.set("EMBEDSIDECAR_SLOT=none_of_this_name")
	s.run(exitUsage, run...)
	s.environ = s.environ[:len(s.environ)-1]
	s.run(0, "run", "--once", "--config", save)
	if n := s.embedded(); n != 0 {
		t.Errorf("%d documents were embedded", n)
	}
	s.run(0, "verify", "--deep", "20")
	s.db.MustExec(`INSERT INTO langchain_pg_embedding SELECT 'wide', collection_id, '[1,2,3]', 'x', '{}'
		FROM langchain_pg_embedding LIMIT 1`)
	_, stderr = s.run(exitUsage, "import", "langchain", "--model", "fake", "--dry-run")
	s.has(stderr, "several widths")
}

func TestImport_SupabasesTriggersAreReplaced(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	s.db.MustExec(`CREATE EXTENSION IF NOT EXISTS vector; CREATE SCHEMA util; CREATE SCHEMA pgmq;
		CREATE TABLE pgmq.q_embedding_jobs (msg_id bigserial, message jsonb);
		CREATE TABLE documents (id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, title text NOT NULL,
			content text NOT NULL, embedding halfvec(8), created_at timestamptz DEFAULT now());
		CREATE FUNCTION embedding_input(doc documents) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
		begin
		  return '# ' || doc.title || E'\n\n' || doc.content;
		end;
		$$;
		CREATE FUNCTION util.queue_embeddings() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
		begin
		  INSERT INTO pgmq.q_embedding_jobs (message) VALUES (jsonb_build_object('id', NEW.id, 'schema', TG_TABLE_SCHEMA,
		    'table', TG_TABLE_NAME, 'contentFunction', TG_ARGV[0], 'embeddingColumn', TG_ARGV[1]));
		  RETURN NEW;
		end; $$;
		CREATE TRIGGER embed_documents_on_insert AFTER INSERT ON documents FOR EACH ROW
			EXECUTE FUNCTION util.queue_embeddings('embedding_input', 'embedding');
		CREATE TRIGGER embed_documents_on_update AFTER UPDATE OF title, content ON documents FOR EACH ROW
			EXECUTE FUNCTION util.queue_embeddings('embedding_input', 'embedding')`)
	for i := range 30 {
		title, content := strings.Repeat("t", i+1), strings.Repeat("c ", i+1)
		s.db.MustExec("INSERT INTO documents (title, content, embedding) VALUES ($1, $2, $3::text::halfvec)", title, content,
			vectorOf("# "+title+"\n\n"+content))
	}
	s.db.MustExec("DELETE FROM pgmq.q_embedding_jobs WHERE message ->> 'id' <> '7'")
	save := filepath.Join(t.TempDir(), "supabase.yaml")
	s.run(0, "import", "supabase", "--model", "fake", "--save", save)
	s.run(0, "run", "--once", "--config", save)
	if n := s.embedded(); n != 1 {
		t.Errorf("%d documents were embedded, want the one that was queued", n)
	}
	s.run(0, "verify", "--deep", "20")
	n := testenv.Value[int](s.db, "SELECT count(*)::int FROM pg_trigger WHERE tgrelid = 'documents'::regclass")
	if n != 0 {
		t.Errorf("%d triggers are left", n)
	}
}

// pgedgeSchema has the names and shapes of pgEdge Vectorizer 1.1 that the import reads and calls. Its own SQL needs a
// library in C, which no registry has.
const pgedgeSchema = `CREATE EXTENSION IF NOT EXISTS vector; CREATE SCHEMA pgedge_vectorizer;
	CREATE TABLE pgedge_vectorizer.vectorizers (id bigserial PRIMARY KEY, source_table text NOT NULL,
		source_column name NOT NULL, chunk_table text NOT NULL, source_pk name, pk_type text,
		UNIQUE (source_table, source_column));
	CREATE TABLE pgedge_vectorizer.queue (id bigserial PRIMARY KEY, chunk_id bigint NOT NULL, chunk_table text NOT NULL,
		content text NOT NULL, status text NOT NULL DEFAULT 'pending');
	CREATE FUNCTION pgedge_vectorizer.vectorization_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO pgedge_vectorizer.queue (chunk_id, chunk_table, content) VALUES (NEW.id, TG_ARGV[1], NEW.body);
		RETURN NEW;
	END $$;
	CREATE FUNCTION pgedge_vectorizer.disable_vectorization(source_table regclass, source_column name DEFAULT NULL,
		drop_chunk_table boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
	#variable_conflict use_column
	DECLARE
		named text := $1::text;
		chunks text;
	BEGIN
		DELETE FROM pgedge_vectorizer.vectorizers AS v WHERE v.source_table = named AND v.source_column = $2
			RETURNING v.chunk_table INTO STRICT chunks;
		EXECUTE format('DROP TRIGGER %I ON %s', named || '_' || $2 || '_vectorization_trigger', named);
		DELETE FROM pgedge_vectorizer.queue AS q WHERE q.chunk_table = chunks AND q.status IN ('pending', 'processing');
		IF $3 THEN
			EXECUTE format('DROP TABLE %I CASCADE', chunks);
		END IF;
	END $$;
	CREATE TABLE docs_body_chunks (id bigserial PRIMARY KEY, source_id bigint NOT NULL, chunk_index int NOT NULL,
		content text NOT NULL, token_count int, embedding vector(8), UNIQUE (source_id, chunk_index));
	CREATE TRIGGER docs_body_vectorization_trigger AFTER INSERT OR UPDATE ON docs FOR EACH ROW
		EXECUTE FUNCTION pgedge_vectorizer.vectorization_trigger('body', 'docs_body_chunks');
	INSERT INTO pgedge_vectorizer.vectorizers (source_table, source_column, chunk_table, source_pk, pk_type)
		VALUES ('docs', 'body', 'docs_body_chunks', 'id', 'bigint')`

func TestImport_PgedgesWholeTextsAreTakenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t, 30)
	s.db.MustExec(pgedgeSchema)
	// Version 14 lets everyone create there.
	s.db.MustExecSuper("REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO " + testenv.Owner)
	for _, id := range testenv.Values[int](s.db, "SELECT id::int FROM docs") {
		body := testenv.Value[string](s.db, "SELECT body FROM docs WHERE id = $1", id)
		s.db.MustExec(`INSERT INTO docs_body_chunks (id, source_id, chunk_index, content, embedding)
			VALUES ($1, $1, 1, $2, $3::text::vector)`, id, body, vectorOf(body))
	}
	s.db.MustExec("UPDATE docs SET body = 'changed, and queued' WHERE id = 7")
	save := filepath.Join(t.TempDir(), "pgedge.yaml")
	run := []string{"import", "pgedge", "--model", "fake", "--save", save}
	s.db.MustExec("UPDATE pgedge_vectorizer.queue SET status = 'processing'")
	_, stderr := s.run(exitConflict, run...)
	s.has(stderr, "still works", "num_workers")
	s.db.MustExec(`UPDATE pgedge_vectorizer.queue SET status = 'pending';
		INSERT INTO docs_body_chunks (id, source_id, chunk_index, content) VALUES (100, 1, 2, 'cut')`)
	_, stderr = s.run(exitUsage, run...)
	s.has(stderr, "1 of 30 texts are cut")
	s.db.MustExec("DELETE FROM docs_body_chunks WHERE chunk_index = 2")
	s.run(0, run...)
	s.run(0, "run", "--once", "--config", save)
	if n := s.embedded(); n != 1 {
		t.Errorf("%d texts were embedded, want the one that was queued", n)
	}
	s.run(0, "verify", "--deep", "20")
	if left := testenv.Value[int](s.db, `SELECT (SELECT count(*) FROM pgedge_vectorizer.vectorizers)::int
		+ (SELECT count(*) FROM pg_trigger WHERE tgfoid = 'pgedge_vectorizer.vectorization_trigger'::regproc)::int
		+ (to_regclass('docs_body_chunks') IS NOT NULL)::int`); left != 0 {
		t.Errorf("%d of the entry, trigger and table of chunks are left", left)
	}
}
