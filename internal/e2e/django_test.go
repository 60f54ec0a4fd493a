//go:build linux && clients

package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestClients_ASearchPageInDjango: the block of docs/search.md as it stands there, with real Django: filters, pages,
// also of equal texts, and highlights.
func TestClients_ASearchPageInDjango(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, status text, tenant int,
		made timestamptz DEFAULT now());
		INSERT INTO docs SELECT i, 'Password', 'reset it <b>' || i / 28 || '</b>', CASE WHEN i % 2 = 0 THEN 'published'
			ELSE 'draft' END, i % 4 FROM generate_series(1, 60) AS i`)
	// Django reads no times in another style.
	db.MustExecSuper("ALTER DATABASE " + pgx.Identifier{db.Name}.Sanitize() + " SET datestyle = 'ISO, MDY'")
	r := newRig(t, db, pipeline.Spec{
		Name: "public.docs", Schema: "public", Table: "docs", Columns: []string{"title", "body"},
		IntoTable: "docs_embedding", Enabled: true,
	})
	r.run()
	r.caughtUp()
	paper, err := os.ReadFile("../../docs/search.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(paper), "### A search page in Django")
	next := func(language string) (block string) {
		_, section, _ = strings.Cut(section, "```"+language+"\n")
		block, section, _ = strings.Cut(section, "```")
		return block
	}
	block, view, template := next("python"), next("python"), next("html")
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pages", "templates", "pages"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"pages/__init__.py": "", "pages/search.py": block, "pages/views.py": view, "pages/templates/pages/search.html": template,
		"pages/models.py": `from django.db import models

class Doc(models.Model):
    title = models.TextField()
    body = models.TextField()
    status = models.TextField()
    tenant = models.IntegerField()
    made = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "docs"
`, "try.py": `import os, django
from django.conf import settings
settings.configure(INSTALLED_APPS=["pages"], ROOT_URLCONF="pages.views", ALLOWED_HOSTS=["*"], TEMPLATES=[
    {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}], DATABASES={"default": {"ENGINE": "django.db.backends.postgresql",
    "HOST": os.environ["AT"], "PORT": os.environ["PORT"], "NAME": os.environ["NAME"], "USER": os.environ["ROLE"],
    "PASSWORD": os.environ["PASSWORD"]}})
django.setup()
from pages.search import search
from django.db import DatabaseError, transaction
import datetime
first, more = search("reset", status="published", tenant={"$gte": 2})
second, end = search("reset", page=1, status="published", tenant={"$gte": 2})
assert len(first) == 10 and more and len(second) == 5 and not end, (len(first), more, len(second), end)
found = first + second
assert len({d.id for d in found}) == 15 and all(d.status == "published" and d.tenant == 2 for d in found), found
assert [d.distance for d in found] == sorted(d.distance for d in found)
assert search("reset", status=["published", "other"], made={"$gt": datetime.date(2020, 1, 1)}, fresh_only=True)[1]
assert search("reset", max_distance=-1) == ([], False)
assert "<mark>reset</mark>" in found[0].passages and "<b>" not in found[0].passages, found[0].passages
with transaction.atomic():
    try:
        search("")
        raise SystemExit("an empty text is no error")
    except DatabaseError as err:
        assert err.__cause__.diag.message_primary.startswith("embed:"), err
    assert len(search("reset")[0]) == 10
from django.test import Client
def page(**asked):
    answer = Client().get("/search/", asked)
    return answer.status_code, answer.content.decode()
status, text = page(q="reset", status="published")
assert status == 200 and text.count("<h2>") == 10 and "page=1" in text and "Back" not in text, text
status, text = page(q="reset", status="published", page="2")
assert status == 200 and text.count("<h2>") == 10 and "page=1" in text and "More" not in text, text
assert page()[0] == 200 and page(q="reset", page="x")[0] == 200 and page(q="reset", page="99999999")[0] == 200
assert page(q="a\x00b")[0] in (200, 503)
assert "Nothing found" in page(q="reset", status="gone")[1] and "Nothing found" not in page()[1]
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	python := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("EMBEDSIDECAR_CLIENTS"), "venv", "bin", "python3"), "try.py")
	python.Dir = dir
	python.Env = []string{
		"PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "AT=" + u.Hostname(), "PORT=" + u.Port(), "NAME=" + db.Name,
		"ROLE=" + u.User.Username(), "PASSWORD=" + password,
	}
	if out, err := python.CombinedOutput(); err != nil {
		t.Fatalf("the page failed: %v\n%s", err, out)
	}
}
