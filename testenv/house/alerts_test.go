package house

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

const (
	rulesFile     = "deploy/prometheus/embedsidecar.rules.yml"
	ruleTestsFile = "deploy/prometheus/embedsidecar.test.yml"
	dashboardFile = "deploy/grafana/embedsidecar.json"
)

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// rules returns all alerts.
func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return all
}

// metric maps the labels of a metric to their values in the golden file.
type metric map[string][]string

// metricNames returns all metrics of the golden file of package metrics. A histogram has the names that expressions
// use.
func metricNames(t *testing.T) map[string]metric {
	t.Helper()
	known := map[string]metric{}
	var name, kind string
	for line := range strings.Lines(read(t, "internal/base/metrics/testdata/names.txt")) {
		if fields := strings.Fields(line); !strings.HasPrefix(line, " ") {
			name, kind = fields[0], fields[1]
			known[name] = metric{"job": nil, "instance": nil} // of the scrape
			continue
		}
		for _, match := range regexp.MustCompile(`(\w+)=([^ }]*)`).FindAllStringSubmatch(line, -1) {
			known[name][match[1]] = append(known[name][match[1]], match[2])
		}
		if kind != "histogram" {
			continue
		}
		for _, ending := range []string{"_bucket", "_sum", "_count"} {
			known[name+ending] = metric{"le": nil}
			maps.Copy(known[name+ending], known[name])
		}
	}
	return known
}

// Labels with values that users choose. All other labels have only the values of the golden file.
var givenNames = []string{
	"code", "handler", "instance", "job", "le", "method", "model", "pipeline", "plugin", "pool", "slot", "source",
	"version",
}

// checkExpression reports metrics, labels and label values that the program does not have. It returns the labels of the
// expression's metrics.
func checkExpression(t *testing.T, where, expr string) []string {
	t.Helper()
	known := metricNames(t)
	used := regexp.MustCompile(`(embedsidecar_\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expr, -1)
	if len(used) == 0 {
		t.Errorf("%s: %q uses no metric of ours", where, expr)
	}
	var labels []string
	for _, match := range used {
		has, ok := known[match[1]]
		if !ok {
			t.Errorf("%s names %s, which does not exist", where, match[1])
			continue
		}
		for label := range has {
			labels = append(labels, label)
		}
		for _, m := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`).FindAllStringSubmatch(match[2], -1) {
			values, ok := has[m[1]]
			if !ok {
				t.Errorf("%s uses the label %s of %s, which does not exist", where, m[1], match[1])
			}
			for value := range strings.SplitSeq(m[2], "|") {
				if ok && !slices.Contains(givenNames, m[1]) && !slices.Contains(values, value) {
					t.Errorf("%s: %s of %s is never %q", where, m[1], match[1], value)
				}
			}
		}
	}
	for _, match := range regexp.MustCompile(`\b(?:by|on|without|ignoring) \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		for label := range strings.FieldsSeq(strings.ReplaceAll(match[1], ",", " ")) {
			if !slices.Contains(labels, label) {
				t.Errorf("%s groups by %s, a label that none of its metrics has", where, label)
			}
		}
	}
	return labels
}

// TestAlerts checks each alert without Prometheus: it uses existing metrics, has a severity, a description and a
// runbook, a row in the manual, and both kinds of test. make test-alerts checks whether it fires.
func TestAlerts(t *testing.T) {
	t.Parallel()
	manual := read(t, "docs/metrics.md")
	headings := anchors(read(t, "docs/operations.md"))
	var names []string
	for _, r := range rules(t) {
		names = append(names, r.Alert)
		labels := checkExpression(t, r.Alert, r.Expr)
		if r.For == "" {
			t.Errorf("%s fires at once: say for how long", r.Alert)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || !strings.Contains(r.Annotations["description"], "$value") {
			t.Errorf("%s lacks a summary, or a description with the value: %q", r.Alert, r.Annotations)
		}
		for _, match := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["description"], -1) {
			if !slices.Contains(labels, match[1]) {
				t.Errorf("%s uses the label %s, which does not exist", r.Alert, match[1])
			}
		}
		const runbook = "https://github.com/embedsidecar/embedsidecar/blob/main/docs/operations.md#"
		heading, ok := strings.CutPrefix(r.Annotations["runbook_url"], runbook)
		if !ok || !slices.Contains(headings, heading) {
			t.Errorf("%s leads to %q: docs/operations.md has no such heading", r.Alert, r.Annotations["runbook_url"])
		}
		row := "| [`" + r.Alert + "`](operations.md#" + heading + ") | " + r.Labels["severity"] + " | " + r.For + " |"
		if !strings.Contains(manual, row) {
			t.Errorf("docs/metrics.md has no row %q", row)
		}
	}
	for _, match := range regexp.MustCompile("`(Embedsidecar[A-Za-z]+)`").FindAllStringSubmatch(manual, -1) {
		if !slices.Contains(names, match[1]) {
			t.Errorf("docs/metrics.md has the alert %s, which does not exist", match[1])
		}
	}
	checkAlertTests(t, names)
}

// TestP10_EveryStateThatNeedsSomeoneHasAnAlert: the states before unacknowledged are those in which nothing is
// embedded. The others have an end of their own, are wished, or show in other metrics.
func TestP10_EveryStateThatNeedsSomeoneHasAnAlert(t *testing.T) {
	t.Parallel()
	others := []health.Code{health.SlotWaiting, health.Paused, health.OutsideHours, health.BudgetSpent, health.Disabled}
	var named []string
	for _, r := range rules(t) {
		for _, match := range regexp.MustCompile(`embedsidecar_pipeline_state\{state=~?"([^"]*)"`).FindAllStringSubmatch(r.Expr, -1) {
			named = append(named, strings.Split(match[1], "|")...)
		}
	}
	for _, code := range health.Codes() {
		if code == string(health.Unacknowledged) {
			return
		}
		if !slices.Contains(named, code) && !slices.Contains(others, health.Code(code)) {
			t.Errorf("no alert is about pipelines that are %s", code)
		}
	}
}

// checkAlertTests checks that every alert is tested to fire and not to fire, on metrics that exist.
func checkAlertTests(t *testing.T, names []string) {
	t.Helper()
	var file struct {
		Tests []struct {
			Name  string `yaml:"name"`
			Input []struct {
				Series string `yaml:"series"`
			} `yaml:"input_series"`
			Alerts []struct {
				Name     string `yaml:"alertname"`
				Expected []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal([]byte(read(t, ruleTestsFile)), &file); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, input := range test.Input {
			checkExpression(t, "the test "+test.Name, input.Series)
		}
		for _, alert := range test.Alerts {
			if !slices.Contains(names, alert.Name) {
				t.Errorf("%s tests %s, which is no alert", ruleTestsFile, alert.Name)
			}
			if len(alert.Expected) > 0 {
				fires[alert.Name] = true
			} else {
				quiet[alert.Name] = true
			}
		}
	}
	for _, name := range names {
		if !fires[name] || !quiet[name] {
			t.Errorf("%s: tested to fire: %v, tested not to fire: %v", name, fires[name], quiet[name])
		}
	}
}

// TestDashboard finds panels that would be empty in Grafana.
func TestDashboard(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			Targets []struct {
				RefID  string `json:"refId"`
				Expr   string `json:"expr"`
				Legend string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Name       string `json:"name"`
				Definition string `json:"definition"`
			} `json:"list"`
		} `json:"templating"`
	}
	content := read(t, dashboardFile)
	if err := json.Unmarshal([]byte(content), &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := []string{"__rate_interval", "__range", "__all"} // Grafana's own
	for _, v := range dashboard.Templating.List {
		variables = append(variables, v.Name)
		if match := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition); match != nil {
			if labels := checkExpression(t, "the variable "+v.Name, match[1]); !slices.Contains(labels, match[2]) {
				t.Errorf("the variable %s uses the label %s, which its metric does not have", v.Name, match[2])
			}
		}
	}
	for _, match := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(content, -1) {
		if !slices.Contains(variables, match[1]) {
			t.Errorf("the dashboard has no variable %s", match[1])
		}
	}
	ids := map[int]string{}
	for _, p := range dashboard.Panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("the panels %q and %q have the id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			labels := checkExpression(t, "the panel "+p.Title, target.Expr)
			for _, match := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.Legend, -1) {
				if !slices.Contains(labels, match[1]) {
					t.Errorf("the panel %q uses the label %s, which %s does not have", p.Title, match[1], target.RefID)
				}
			}
		}
	}
}
