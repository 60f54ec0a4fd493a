package report

import (
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// BatchJob is a batch job of a pipeline's provider that is not done.
type BatchJob struct {
	State   string  `json:"state"` // gathering, closed, submitting, running, ended
	Job     string  `json:"job"`   // the provider's name of it; empty: it has none yet
	Rows    int64   `json:"rows"`
	Texts   int64   `json:"texts"` // 0: they are not read yet
	Tokens  int64   `json:"tokens"`
	Price   float64 `json:"price"` // about; 0: the model has none in the configuration
	Seconds float64 `json:"seconds"`
	Message string  `json:"message"` // why it waits, or has no results; empty: all is well
}

// String says how far it is.
func (j BatchJob) String() string {
	what := map[string]string{
		"gathering": "its rows are looked for", "closed": "is about to be submitted", "submitting": "is being submitted",
		"running": "runs", "ended": "has ended, its vectors are written",
	}[j.State]
	line := fmt.Sprintf("%s since %s", what, wording.Age(j.Seconds))
	if j.Job != "" {
		line = j.Job + " " + line
	}
	if j.Texts > 0 {
		line += fmt.Sprintf(": %s, %s", wording.Count(j.Texts, "text"), wording.Count(j.Tokens, "token"))
		if j.Price > 0 {
			line += ", price " + wording.Money(j.Price, "")
		}
	} else {
		line += fmt.Sprintf(": about %s", wording.Count(j.Rows, "row"))
	}
	if j.Message != "" {
		line += "; " + j.Message
	}
	return line
}

// BatchLine says how far the batch jobs of a pipeline are; "" where there are none.
func BatchLine(pipeline string, list []BatchJob) string {
	var lines []string
	for _, j := range list {
		lines = append(lines, "batch job "+j.String())
	}
	if len(lines) == 0 {
		return ""
	}
	return pipeline + ": " + strings.Join(lines, "; ")
}
