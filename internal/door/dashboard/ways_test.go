package dashboard

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// TestPages_ShowTheWayOut: for every state, the page of a pipeline has a command to copy. The command is one that the
// docs name for this state, or one of a few for diagnosis.
func TestPages_ShowTheWayOut(t *testing.T) {
	t.Parallel()
	service := admin.NewService(admin.ServiceOptions{Config: config.Default(), Log: slog.New(slog.DiscardHandler)})
	d := New(Options{Service: service, Log: slog.New(slog.DiscardHandler), Version: "1.0.0"})
	quoted := regexp.MustCompile("`(embedsidecar [a-z -]*[a-z])[^`]*`")
	looks := []string{"embedsidecar check", "pg_terminate_backend(7)", "embedsidecar status --watch", "embedsidecar plan"}
	other := map[health.Code]string{ // for these states the docs refer to a file or a process
		health.BudgetSpent: "embedsidecar reload", health.StandbyOnly: "embedsidecar run",
		health.Disabled: "embedsidecar run", health.OtherModel: "embedsidecar model change",
	}
	for _, e := range health.Table() {
		p := observe.Pipeline{Pipeline: report.Pipeline{
			Name: "it's a name", State: e.Code, Reason: "because", WaitsFor: []database.Blocker{{PID: 7, Words: "pid 7"}},
		}}
		w := httptest.NewRecorder()
		d.render(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pipelines/x", nil), view{
			page: "pipeline", title: p.Name, data: &onePipeline{Pipeline: p, Step: stepOf(&p), Past: pastOf(report.Past{}, "/")},
		})
		hero, _, _ := strings.Cut(w.Body.String(), "</section>")
		has := strings.Contains(hero, `class="command"`)
		if strings.HasPrefix(e.Do, "nothing") || e.Code == health.Unacknowledged {
			if has && e.Code != health.RowsCancelled {
				t.Errorf("%s: nothing is to be done, and the page says how:\n%s", e.Code, hero)
			}
			continue
		}
		wanted := append([]string{other[e.Code]}, looks...)
		for _, m := range quoted.FindAllStringSubmatch(e.Do, -1) {
			wanted = append(wanted, m[1])
		}
		found := false
		for _, want := range wanted {
			found = found || want != "" && strings.Contains(hero, "<code>"+want) || strings.Contains(hero, "SELECT "+want)
		}
		if !has || !found {
			t.Errorf("%s: none of %q is on its page:\n%s", e.Code, wanted, hero)
		}
	}
}
