package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

//go:embed templates/*.html assets/*
var files embed.FS

// view is a page with its data.
type view struct {
	page   string // name of the template
	title  string
	data   any
	live   bool // updated by the script
	bare   bool // without the menu
	status int  // 0: 200
}

// shown is the input of a template.
type shown struct {
	Title, Page, Path, Here string
	Theme, Version          string
	Live, Bare              bool
	MayAct, ReadOnly        bool
	Caller                  gate.Caller
	Told                    []notice
	AsOf                    *time.Time // the time of the state, if it is not current
	Nav                     []entry
	Tabs                    []link
	Database                string // if there are several
	Databases               []admin.DatabaseState
	Data                    any
}

// entry is an entry of the menu, with its tabs.
type entry struct {
	link

	Tabs []link
}

type link struct {
	Name, Path string
	Current    bool
}

// nav is the menu. Of the tabs of an entry, the first is at the entry's path.
var nav = []entry{
	{link{Name: "Overview", Path: "/"}, nil},
	{link{Name: "Pipelines", Path: "/pipelines"}, nil},
	{link{Name: "Queue", Path: "/queue"}, []link{
		{Name: "Rows", Path: "/queue"}, {Name: "Errors", Path: "/errors"}, {Name: "Dead letters", Path: "/dead-letters"},
	}},
	{link{Name: "Search", Path: "/search"}, []link{{Name: "Search", Path: "/search"}, {Name: "One row", Path: "/row"}}},
	{link{Name: "System", Path: "/system"}, []link{
		{Name: "Stream and sidecars", Path: "/system"},
		{Name: "Models and plugins", Path: "/models"},
		{Name: "Checks", Path: "/checks"},
		{Name: "Settings", Path: "/config"},
	}},
	{link{Name: "Audit", Path: "/audit"}, nil},
	{link{Name: "Help", Path: "/help"}, nil},
}

// navFor marks the current page, and returns the tabs beside it.
func navFor(here string) (menu []entry, tabs []link) {
	menu = slices.Clone(nav)
	for i := range menu {
		e := &menu[i]
		e.Current = e.Path == here || e.Path != "/" && strings.HasPrefix(here, e.Path+"/")
		list := slices.Clone(e.Tabs)
		for k := range list {
			if list[k].Current = list[k].Path == here; list[k].Current {
				e.Current, tabs = true, list
			}
		}
	}
	return menu, tabs
}

// readAssets reads the static files, which are compiled in.
func (d *Dashboard) readAssets() {
	kinds := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}
	d.assets, d.hashed = map[string]asset{}, map[string]string{}
	entries, _ := files.ReadDir("assets")
	for _, e := range entries {
		content, _ := files.ReadFile("assets/" + e.Name())
		sum, ext := sha256.Sum256(content), path.Ext(e.Name())
		name := fmt.Sprintf("%s-%x%s", strings.TrimSuffix(e.Name(), ext), sum[:6], ext)
		d.assets[name], d.hashed[e.Name()] = asset{string(content), kinds[ext]}, name
	}
}

// readPages parses the templates, which are compiled in: each page with the frame around it.
func (d *Dashboard) readPages() {
	d.pages = map[string]*template.Template{}
	names, _ := fs.Glob(files, "templates/[^_]*.html")
	for _, name := range names {
		d.pages[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(template.New("_frame.html").
			Funcs(d.functions()).ParseFS(files, "templates/_frame.html", "templates/_parts.html", name))
	}
}

func (d *Dashboard) functions() template.FuncMap {
	return template.FuncMap{
		"at":       d.at,
		"base":     func() string { return d.o.Base },
		"database": func() string { return d.database },
		"dbtone":   tone[string],
		"pipe":     func(name string) string { return d.at("/pipelines/" + url.PathEscape(name)) },
		"asset":    func(name string) string { return d.at("/assets/" + d.hashed[name]) },
		"link":     func(path string, pairs ...string) string { return d.at(linkTo(path, pairs...)) },
		"size":     wording.Size,
		"age":      spoken,
		"spokenms": func(ms float64) string { return spoken(ms / 1000) },
		"count":    number,
		"plural":   wording.Count,
		"short":    shortTime,
		"stamp":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"bar":      bar,
		"tonefor":  func(p observe.Pipeline) string { return toneFor(&p) },
		"codetone": toneOfCode,
		"word":     func(c health.Code) string { return c.Word() },
		"percent":  wording.Percent,
		"deref":    func(f *float64) float64 { return *f },
		"list":     func(items ...any) []any { return items },
		"dict":     dict,
		"helpfor":  d.helpFor,
		"join":     strings.Join,
		"has":      slices.Contains[[]string],
		"status":   checkTone,
		"circuittone": func(c host.Circuit) string {
			if c == host.Closed {
				return "good"
			}
			return "bad"
		},
		"stateword": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
		"statetone": tone[string], "streamtone": tone[health.Stream],
		"len64":     func(list []search.Hit) int64 { return int64(len(list)) },
		"int64":     func(n int) int64 { return int64(n) },
		"capital":   capital,
		"shellword": health.Quoted,
		"plain":     func(s string) string { return strings.ReplaceAll(s, "`", "") }, // code in Markdown
		"chars":     func(n *int) int64 { return int64(*n) },
		"millis":    millis,
		"inc":       func(n int) int { return n + 1 },
		"pace":      func(p observe.Pipeline) pace { return paceOf(&p) },
		"rate":      rateOf,
		// vectors of unrelated texts have a distance of about 1
		"closeness": func(distance *float64) float64 { return 1 - min(*distance, 1) },
		"scaled":    func(distance *float64) bool { return *distance >= 0 && *distance <= 2 }, // a cosine's
		"column":    column,
		"taskclass": func(c report.TaskColumn) string {
			if strings.HasPrefix(c.Name, ">") {
				return "num"
			}
			return "wide"
		},
		"digits": func(f float64, n int) string { return strconv.FormatFloat(f, 'f', n, 64) },
	}
}

// at returns the URL of a path, with the database if there are several.
func (d *Dashboard) at(path string) string {
	if d.database == "" || strings.HasPrefix(path, "/assets/") {
		return d.o.Base + path
	}
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	return d.o.Base + path + mark + "database=" + url.QueryEscape(d.database)
}

// dict makes the arguments of a partial template from names and values.
func dict(pairs ...any) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, errors.New("dict: a name is no string")
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// linkTo returns a path with a query of names and values, without the empty ones.
func linkTo(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Add(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// number formats an integer with separated thousands.
func number(n any) string {
	i, _ := strconv.ParseInt(fmt.Sprint(n), 10, 64)
	return humanize.Comma(i)
}

func capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func millis(d time.Duration) string {
	if d < 100*time.Microsecond {
		return "under 0.1 ms"
	}
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + " ms"
}

func shortTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func column(c report.TaskColumn, t report.Task) any {
	switch v := c.Of(&t).(type) {
	case report.Seconds:
		return spoken(float64(v))
	case *time.Time:
		if v == nil {
			return ""
		}
		return shortTime(*v)
	default:
		return v
	}
}

// toneOf returns the tone of a pipeline: good, busy, warn or bad.
func toneOf(p *observe.Pipeline) string {
	switch c := p.State; {
	case c == health.UpToDate:
		return "good"
	case c == health.Paused, c == health.Disabled, c == health.RowsFailed, c == health.RowsCancelled:
		return "warn"
	case p.NeedsAct:
		return "bad"
	}
	return "busy"
}

// toneOfCode returns the tone of a state, as far as the state alone determines it.
func toneOfCode(c health.Code) string {
	order := health.Codes()
	p := observe.Pipeline{Pipeline: report.Pipeline{State: c}}
	p.NeedsAct = slices.Index(order, string(c)) < slices.Index(order, string(health.Unacknowledged)) &&
		c != health.SlotWaiting && c != health.OutsideHours && c != health.BudgetSpent
	return toneOf(&p)
}

// tones are those of states of databases, tasks and streams; other states are busy.
var tones = map[string]string{
	"working": "good", "quiet": "good", "failing": "bad", "unserved": "warn",
	"embedded": "good", "reused": "good", "unchanged": "good", "failed": "bad",
	"retrying": "warn", "stale": "warn", "cancelled": "warn",
	string(health.Streaming): "good", string(health.Stuck): "bad",
}

func tone[S ~string](state S) string { return cmp.Or(tones[string(state)], "busy") }

func checkTone(s check.Status) string {
	switch s {
	case check.OK:
		return "good"
	case check.Warn:
		return "warn"
	default:
		return "bad"
	}
}

// trouble is the content of an error page.
type trouble struct {
	Text  string
	Hints []string
}

func (d *Dashboard) failed(ctx context.Context, err error) view {
	if errors.Is(err, errNoPage) {
		return view{
			page: "trouble", title: "There is no such page", status: http.StatusNotFound,
			data: trouble{Text: "Use the menu."},
		}
	}
	p := d.o.Service.ProblemOf(ctx, err)
	v := view{page: "trouble", title: "This did not work", status: p.Status, data: trouble{p.Detail, p.Hints}}
	switch {
	case problem.Of(err) == problem.NotSetUp:
		v.title = "Nothing is set up yet"
		v.data = trouble{"There is no pipeline in this database.", []string{
			"embedsidecar init, or the first embedsidecar run, sets up pipelines",
		}}
	case p.Status == http.StatusServiceUnavailable, p.Status == http.StatusGatewayTimeout:
		v.title = "The database does not answer"
	case p.Status == http.StatusForbidden:
		v.title = "Not permitted"
	case p.Status == http.StatusNotFound:
		v.title = "There is no such thing"
	}
	return v
}

const (
	themeCookie = "embedsidecar_theme"
	themeAge    = 365 * 24 * time.Hour
)

func themeOf(s string) string {
	if s == "light" || s == "dark" {
		return s
	}
	return "system"
}

// live is the header of requests by the script that updates pages.
const live = "X-Live"

// old is the age from which a page shows the time of its state.
const old = 2 * time.Second

// render writes a page completely, or an error.
func (d *Dashboard) render(w http.ResponseWriter, r *http.Request, v view) {
	c, _ := gate.CallerOf(r.Context())
	theme := "system"
	if cookie, err := r.Cookie(themeCookie); err == nil {
		theme = themeOf(cookie.Value)
	}
	s := shown{
		Title: v.title, Page: v.page, Path: r.URL.Path, Here: here(r), Theme: theme, Version: d.o.Version,
		Live: v.live, Bare: v.bare, MayAct: d.o.Service.MayChange(r.Context()) == nil,
		ReadOnly: d.o.Service.ReadOnly(), Caller: c,
		Data: v.data, Database: d.database,
	}
	if at := d.o.Service.LookedAt(); v.live && !at.IsZero() && time.Since(at) > old {
		s.AsOf = &at
	}
	s.Nav, s.Tabs = navFor(r.URL.Path)
	if !v.bare {
		s.Databases, _ = d.o.Service.Databases(r.Context()) // a caller without rights sees no page
	}
	if !v.bare && r.Header.Get(live) == "" {
		s.Told = d.notices.told(c)
	}
	var page bytes.Buffer
	if err := d.pages[v.page].Execute(&page, s); err != nil {
		d.o.Log.ErrorContext(r.Context(), "page not shown", "page", v.page, "error", err)
		http.Error(w, "this page could not be shown; the log of the program says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if v.status != 0 {
		w.WriteHeader(v.status)
	}
	_, _ = w.Write(page.Bytes())
}

const (
	noticeAge   = time.Minute
	mostNotices = 100
)

// notice is the result of an action.
type notice struct {
	Text  string
	Wrong bool
	until time.Time
}

// notices holds results until the next page of their callers.
type notices struct {
	mu   sync.Mutex
	list map[string]notice // by name of the caller
}

func (n *notices) tell(who gate.Caller, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.list == nil || len(n.list) >= mostNotices {
		n.list = map[string]notice{}
	}
	n.list[who.Name] = notice{Text: text, until: time.Now().Add(noticeAge)}
}

// told returns the waiting notice once.
func (n *notices) told(who gate.Caller) []notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.list[who.Name]
	delete(n.list, who.Name)
	if !ok || time.Now().After(found.until) {
		return nil
	}
	return []notice{found}
}

// here returns the current page with its query, for forms to return to.
func here(r *http.Request) string {
	if r.Method != http.MethodGet {
		return "/"
	}
	if r.URL.RawQuery == "" {
		return r.URL.Path
	}
	return r.URL.Path + "?" + r.URL.RawQuery
}

// back returns the page of the dashboard that a form was on, or the overview.
func back(r *http.Request) string {
	to := r.PostFormValue("back")
	u, err := url.Parse(to) // rejects tabs and other characters that browsers remove
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || slices.Contains(strings.Split(u.Path, "/"), "..") ||
		!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") ||
		strings.ContainsFunc(to, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }) {
		to = "/"
	}
	return to
}
