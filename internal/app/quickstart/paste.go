package quickstart

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// paste shows statements and programs that search the table, ready to be pasted.
func (q *quickstart) paste(ctx context.Context, flags string) {
	all, err := lookup.Named(ctx, q.pool, []string{q.Config.Pipelines[0].Name})
	if err != nil || len(all) == 0 || len(all[0].Key) == 0 {
		return // it cannot be searched now, which is reported elsewhere
	}
	s := program{
		p: &all[0], text: cmp.Or(q.asked, "a text"), url: q.Config.Database.URL, asks: q.release < asksItself,
		listen: q.Config.Queries.Listen, flags: flags, program: q.Program,
	}
	s.hidden = q.Redact(s.url) != s.url
	q.Say("\nFrom an application, while %s run works:", q.Program)
	var owner *string
	err = q.pool.QueryRow(ctx, `SELECT embedsidecar.search_owner($1) FROM pg_roles
		WHERE rolname IN (current_user, session_user) AND rolsuper LIMIT 1`, s.p.Name).Scan(&owner)
	if err == nil && owner != nil {
		s.as(*owner)
		q.Say("A superuser cannot search a table of %[1]q by SQL. Run this, and connect as %[1]q:\n"+
			"  %[2]s roles --yes%[3]s\n  GRANT embedsidecar_searcher TO %[4]s;   (SQL)%[5]s", *owner, q.Program, flags,
			database.Quote(*owner), s.readable(*owner))
	}
	for _, part := range []struct{ title, text string }{
		{"SQL", s.sql()},
		{"Python, psycopg", s.psycopg()},
		{"Python, SQLAlchemy", s.alchemy()},
		{"Python, Django", s.django()},
		{"curl", s.curl()},
	} {
		q.Say("\n-- %s --\n%s", part.title, part.text)
	}
}

// readable returns the GRANT that lets the owner of the rows read vectors in a table that a superuser made.
func (s *program) readable(owner string) string {
	if s.p.InSource() {
		return ""
	}
	d := s.p.Destination()
	return "\n  GRANT SELECT ON " + database.Quote(d.Schema, d.Table) + " TO " + database.Quote(owner) + ";"
}

// as makes the programs connect as another role.
func (s *program) as(role string) {
	u, err := url.Parse(s.url)
	if s.hidden = s.hidden || err != nil || u.Scheme == ""; !s.hidden {
		u.User = url.User(role)
		s.url = u.String()
	}
}

// asksItself is the first PostgreSQL major version on which the search functions request the vector of a text
// themselves.
const asksItself = 17

// program writes programs that search a pipeline.
type program struct {
	p      *pipeline.Pipeline
	text   string // to search for
	url    string // of the database
	hidden bool   // it has a password, which is not shown
	asks   bool   // the server needs CALL embedsidecar.ask first
	listen string // address of the HTTP query API; "": none yet
	flags  string // of run

	program string // the name that this program was called by
}

// statement returns the search statement. text is a placeholder or a literal.
func (s *program) statement(text string) string {
	p := s.p
	var columns, keys []string
	seen := map[string]bool{}
	for _, k := range p.Key {
		name := "d." + database.Quote(k.Name)
		columns, seen[k.Name] = append(columns, name), true
		keys = append(keys, fmt.Sprintf("%s = (s.key ->> %s)::%s", name, database.Literal(k.Name), k.Type))
	}
	for _, c := range p.Columns {
		if !seen[c] {
			columns, seen[c] = append(columns, "d."+database.Quote(c)), true
		}
	}
	if p.Chunked && !p.Chunking.NoText {
		columns = append(columns, "s.chunk_text")
	}
	return fmt.Sprintf("SELECT s.distance, %s\nFROM   embedsidecar.search(%s, %s, 5) AS s\nJOIN   %s AS d ON %s\n"+
		"ORDER  BY s.distance", strings.Join(columns, ", "), database.Literal(p.Name), text, p.Source(),
		strings.Join(keys, " AND "))
}

// ask returns the statement that must come first on an older server. text is a placeholder or a literal.
func (s *program) ask(text string) string {
	return fmt.Sprintf("CALL embedsidecar.ask(%s, %s)", database.Literal(s.p.Name), text)
}

func (s *program) sql() string {
	text := s.statement(database.Literal(s.text)) + ";"
	if s.asks {
		text = s.ask(database.Literal(s.text)) + ";\n" + text
	}
	return text
}

// dsn returns the database's URL as a Python expression.
func (s *program) dsn() string {
	if s.url == "" || s.hidden {
		return `os.environ["EMBEDSIDECAR_DATABASE_URL"]`
	}
	return quoted(s.url)
}

// imports returns the Python imports that dsn and psycopg need.
func (s *program) imports() string {
	if strings.HasPrefix(s.dsn(), "os.") {
		return "import os, psycopg"
	}
	return "import psycopg"
}

// execute returns Python code that calls a function with each statement. wrap makes an expression of a statement.
func (s *program) execute(call, arguments string, wrap func(statement string) string) string {
	calls := "    rows = " + call + "(" + wrap(s.statement(hole)) + ", " + arguments + ")\n"
	if s.asks {
		calls = "    " + call + "(" + wrap(s.ask(hole)) + ", " + arguments + ")\n" + calls
	}
	return calls
}

// hole stands for the placeholder while names are escaped.
const hole = "\x00"

// printed is the end of each program.
const printed = "    for row in rows:\n        print(row)"

// percents writes a statement for psycopg and Django.
func percents(statement string) string {
	return long(strings.ReplaceAll(strings.ReplaceAll(statement, "%", "%%"), hole, "%s"))
}

// colons writes a statement for SQLAlchemy.
func colons(statement string) string {
	escaped := strings.ReplaceAll(strings.ReplaceAll(statement, ":", `\:`), `\:\:`, "::")
	return "text(" + long(strings.ReplaceAll(escaped, hole, ":text")) + ")"
}

// long returns a text of several lines as a Python literal.
func long(text string) string {
	if strings.Contains(text, `"""`) || strings.Contains(text, `\`) {
		return quoted(text)
	}
	return `"""` + text + `"""`
}

func (s *program) psycopg() string {
	return s.imports() + "\n\nwith psycopg.connect(" + s.dsn() + ", autocommit=True) as db:\n" +
		s.execute("db.execute", "["+quoted(s.text)+"]", percents) + printed
}

func (s *program) alchemy() string {
	return s.imports() + "\nfrom sqlalchemy import create_engine, text\n\n" +
		"engine = create_engine(\"postgresql+psycopg://\", isolation_level=\"AUTOCOMMIT\",\n" +
		"    creator=lambda: psycopg.connect(" + s.dsn() + "))\nwith engine.connect() as db:\n" +
		s.execute("db.execute", "{\"text\": "+quoted(s.text)+"}", colons) + printed
}

func (s *program) django() string {
	begin := "from django.db import connection\n\n"
	if s.asks {
		begin += "# With ATOMIC_REQUESTS, the view needs transaction.non_atomic_requests.\n"
	}
	return begin + "with connection.cursor() as rows:\n" +
		strings.ReplaceAll(s.execute("rows.execute", "["+quoted(s.text)+"]", percents), "    rows = ", "    ") + printed
}

func (s *program) curl() string {
	at, first, until := s.listen, "", ""
	if at == "" {
		at = "127.0.0.1:7470"
		first = s.program + " run --http " + at + " --no-auth" + s.flags + " &\n"
		until = "-sf --retry 60 --retry-delay 1 --retry-all-errors " // until it answers
	}
	body, _ := json.Marshal(struct { // of a number and a text alone
		K    int    `json:"k"`
		Text string `json:"text"`
	}{nearest, s.text})
	return first + "curl " + until + "-H 'Content-Type: application/json' -d " + health.Quoted(string(body)) + " \\\n  " +
		health.Quoted("http://"+at+"/v1/pipelines/"+url.PathEscape(s.p.Name)+"/search")
}

// quoted returns a text as a Python literal.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a text cannot fail
	return string(b)
}
