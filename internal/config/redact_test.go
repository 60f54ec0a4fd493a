package config

import (
	"strings"
	"testing"
)

func TestRedactDSN(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"postgres://u:s3cret@h:5432/db", "postgres://u:xxxxx@h:5432/db"},
		{"postgresql://u:s3cret@h/db?sslmode=require", "postgresql://u:xxxxx@h/db?sslmode=require"},
		{"postgres://u@h/db", "postgres://u@h/db"},
		{"postgres:///db?host=/run/pg&password=s3cret", "postgres:///db?host=/run/pg&password=xxxxx"},
		{"postgres://h/db?pass%77ord=s3cret&user=u", "postgres://h/db?pass%77ord=xxxxx&user=u"},
		{"postgres://h/db?passwd=s3cret", "postgres://h/db?passwd=xxxxx"},
		{"postgres://h/db?s3cret", "postgres://h/db?xxxxx"},
		{"postgres://u:s3cret@h1:1,h2:2/db", "postgres://u:xxxxx@h1:1,h2:2/db"},
		{"postgres://u:s3cret@[::1]:5432/db", "postgres://u:xxxxx@[::1]:5432/db"},
		{"postgres://u:s3%40cret@h/db", "postgres://u:xxxxx@h/db"},
		{"postgres://u:s3?cret@h/db", "postgres://u:xxxxx@h/db"},
		{"postgres://u:s3#cret@h/db", "postgres://u:xxxxx@h/db"},
		// The end of the password is ambiguous: nothing is shown.
		{"postgres://u:s3@cret@h/db", "postgres://xxxxx"},
		{"postgres://u:s3/cret@h/db", "postgres://xxxxx"},
		{"postgres://u:s3cret/db", "postgres://xxxxx"},
		{"postgres://u:s3cret@h:s3cret/db", "postgres://xxxxx"},
		{"postgres://h/db?password=s3@cret&a=b@c", "postgres://xxxxx"},
		{"host=h user=u password=s3cret dbname=db", "host=h user=u password=xxxxx dbname=db"},
		{"host = h password = 's3 cret' dbname=db", "host=h password=xxxxx dbname=db"},
		{`host=h password='s3\'cret x' dbname=db`, "host=h password=xxxxx dbname=db"},
		{`host=h password=s3\ cret dbname=db`, "host=h password=xxxxx dbname=db"},
		{"host=h passwd=s3cret", "host=h passwd=xxxxx"},
		{"password=s3 cret host=h", "xxxxx"},
		{"password='s3cret", "xxxxx"},
		{"s3cret", "xxxxx"},
		{"mysql://u:s3cret@h/db", "xxxxx"},
	}
	for _, test := range tests {
		if got := RedactDSN(test.in); got != test.want {
			t.Errorf("RedactDSN(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func TestHasPassword(t *testing.T) {
	for dsn, want := range map[string]bool{
		"":                                      false,
		"postgres://u@h/db?application_name=x":  false,
		"postgres://u@h/db?statement_timeout=5": false,
		"postgres://u:p@h/db":                   true,
		"postgres://h/db?password=p":            true,
		"postgres://h/db?%zz=p":                 true,
		"postgres://u:s3cret":                   true,
		"host=h dbname=db":                      false,
		"host=h password=p":                     true,
		"host=h junk":                           true,
	} {
		if got := HasPassword(dsn); got != want {
			t.Errorf("HasPassword(%q) = %v, want %v", dsn, got, want)
		}
	}
}

func TestParseDSN_ErrorsHoldNoPassword(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:s3cret@h:port/db",
		"postgres://u:s3cret@h:99999/db",
		"postgres://u:s3cret@h/db?sslmode=bogus",
		"postgres://u:s3cret@h/db?x",
		"postgres://u:s3@s3cret@h/db?x",
		"postgres://u:s3/s3cret@h/db",
		"postgres://u:s@3/s3cret@h/db",
		"postgres://u:s@s3cret@127.0.0.1:5432/db",
		"postgres://u:s3cret",
		"postgres://u:s3cret%zz@h/db",
		"host=h password=s3cret port=x",
		"host=h password=a s3cret",
		"host=h password='s3cret",
		"s3cret",
		"host=h password=s3cret sslmode=bogus",
		"host=h password=s3cret target_session_attrs=bogus",
	} {
		_, err := ParseDSN(dsn)
		if err == nil {
			t.Errorf("ParseDSN(%q) gave no error", dsn)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("ParseDSN(%q): %v", dsn, err)
		}
	}
}

func TestParseDSN_TakesTheRestFromPGVariables(t *testing.T) {
	t.Setenv("PGHOST", "from-env")
	t.Setenv("PGUSER", "env-user")
	t.Setenv("PGPASSWORD", "env-password")
	cfg, err := ParseDSN("postgres://url-user@/db")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "from-env" || cfg.User != "url-user" || cfg.Password != "env-password" || cfg.Database != "db" {
		t.Errorf("host %q, user %q, database %q", cfg.Host, cfg.User, cfg.Database)
	}
}

func TestRedactor(t *testing.T) {
	r := NewRedactor("postgres://u:hunter22@h/db", "host=h user=u password='two words'",
		"postgres://postgres:postgres@h/db")
	tests := []struct{ in, want string }{
		{`dial "hunter22" refused`, `dial "xxxxx" refused`},
		{"two words", "xxxxx"},
		{"connect to postgres://a:b@c/d: refused", "connect to postgres://a:xxxxx@c/d: refused"},
		{"url: `postgres://a:b@c/d`", "url: `postgres://a:xxxxx@c/d`"},
		{"host=h password=other x", "host=h password=xxxxx x"},
		{"PGPASSWORD='a b' psql", "PGPASSWORD=xxxxx psql"},
		{`database "postgres" does not exist`, `database "postgres" does not exist`},
		{"password authentication failed", "password authentication failed"},
	}
	for _, test := range tests {
		if got := r.Text(test.in); got != test.want {
			t.Errorf("Text(%q) = %q, want %q", test.in, got, test.want)
		}
	}
	var none *Redactor
	if got := none.Text("password=x"); got != "password=xxxxx" {
		t.Errorf("nil redactor: %q", got)
	}
}

// FuzzRedactDSN places a password where the syntax allows one: it must never show.
func FuzzRedactDSN(f *testing.F) {
	f.Add("s3cret", "user", "host")
	f.Add("a@b/c?d:e#f", "u:v", "[::1]")
	f.Add("' \\", "", "a,b")
	f.Fuzz(func(t *testing.T, password, user, host string) {
		marked := "QZ7" + password + "7ZQ"
		for _, dsn := range []string{
			"postgres://u:" + marked + "@h/db",
			"postgresql://" + user + ":" + marked + "@" + host + "/db?sslmode=disable",
			"host=h password='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(marked) + "' user=u",
		} {
			redacted := RedactDSN(dsn)
			if strings.Contains(redacted, "QZ7") && !strings.Contains(user+host, "QZ7") {
				t.Errorf("RedactDSN(%q) = %q", dsn, redacted)
			}
			if _, err := ParseDSN(dsn); err != nil && strings.Contains(err.Error(), "QZ7") && !strings.Contains(user+host,
				"QZ7") {
				t.Errorf("ParseDSN(%q): %v", dsn, err)
			}
		}
	})
}
