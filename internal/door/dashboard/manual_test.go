package dashboard

import (
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/docs"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
)

// TestManual: the program contains each page of docs/, small, without styles or scripts, and each of its links leads to
// an existing page and heading.
func TestManual(t *testing.T) {
	t.Parallel()
	service := admin.NewService(admin.ServiceOptions{Config: config.Default(), Log: slog.New(slog.DiscardHandler)})
	d := New(Options{Service: service, Log: slog.New(slog.DiscardHandler), Base: "/base"})
	ids, links, size := map[string]bool{}, map[string]string{}, 0
	id, href := regexp.MustCompile(`\sid="([^"]*)"`), regexp.MustCompile(`\shref="(/base/help[^"]*)"`)
	unsafe := regexp.MustCompile(`(?i)<[^>]*\sstyle=|<script|<img`)
	show := func(name string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/help/"+name, nil)
		r.SetPathValue("name", name)
		v, err := d.manual(r)
		if err != nil || v.title == "" {
			t.Fatalf("%s: %q, %v", name, v.title, err)
		}
		w := httptest.NewRecorder()
		d.render(w, r, v)
		_, main, _ := strings.Cut(w.Body.String(), "<article")
		main, _, _ = strings.Cut(main, "</article>")
		const most = 100_000
		if bad := unsafe.FindString(main); bad != "" || w.Body.Len() > most || len(main) < 500 {
			t.Errorf("%s: %d bytes, %q", name, w.Body.Len(), bad)
		}
		return main
	}
	err := fs.WalkDir(docs.Pages, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		size += int(info.Size())
		name := strings.TrimSuffix(path, ".md")
		main := show(name)
		ids["/base/help/"+name] = true
		for _, found := range id.FindAllStringSubmatch(main, -1) {
			ids["/base/help/"+name+"#"+found[1]] = true
		}
		for _, found := range href.FindAllStringSubmatch(main, -1) {
			links[found[1]] = name
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for page := range d.pages {
		if to := d.helpFor(page); to != "" {
			links[to] = "template " + page
		}
	}
	for to, from := range links {
		if !ids[to] {
			t.Errorf("%s links to %s, which there is not", from, to)
		}
	}
	if len(ids) < 300 || len(links) < 60 || size > 600_000 {
		t.Errorf("%d headings, %d links, %d bytes", len(ids), len(links), size)
	}
	for _, name := range []string{"nothing", "../README", "adr", "", "search.md"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/help/x", nil)
		r.SetPathValue("name", name)
		if _, err := d.manual(r); err == nil {
			t.Errorf("%q is a page", name)
		}
	}
}
