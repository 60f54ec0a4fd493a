package client

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// TestBatches_OfEachProvider: a job is made, found by its nonce, polled, fetched and cancelled, as each provider
// documents it.
func TestBatches_OfEachProvider(t *testing.T) {
	t.Parallel()
	for _, form := range dialect.AllBatches() {
		t.Run(form.Name, func(t *testing.T) {
			t.Parallel()
			state := ""
			jobs := &remotetest.Batches{
				Mistral: form.Name == "mistral", State: func(*remotetest.BatchJob) string { return state },
			}
			s := &remotetest.Server{Dialect: form.Dialect, Key: secret, Batches: jobs}
			c := open(t, form.Dialect, func(o *Options) {
				o.Batches = form
			}, listen(t, s))
			ids, texts := []string{"a", "b"}, []string{"boats", "harbours"}
			state = "in_progress"
			made, err := c.SubmitBatch(t.Context(), "n1", ids, texts)
			if err != nil || made.ID == "" || made.State != embed.JobRunning {
				t.Fatalf("submitted: %+v, %v", made, err)
			}
			if _, err := c.SubmitBatch(t.Context(), "n2", ids[:1], texts[:1]); err != nil {
				t.Fatal(err)
			}
			if found, err := c.PollBatch(t.Context(), "n1", ""); err != nil || found.ID != made.ID {
				t.Errorf("found by its nonce: %+v, %v", found, err)
			}
			for nonce, id := range map[string]string{"n3": "", "n1": "nobody"} {
				if found, err := c.PollBatch(t.Context(), nonce, id); err != nil || found.State != embed.JobUnknown {
					t.Errorf("%s %q: %+v, %v", nonce, id, found, err)
				}
			}
			state = "failed"
			if now, err := c.PollBatch(t.Context(), "n1", made.ID); err != nil || now.State != embed.JobFailed || now.Message == "" {
				t.Errorf("failed: %+v, %v", now, err)
			}
			state = ""
			if now, err := c.PollBatch(t.Context(), "n1", made.ID); err != nil || now.State != embed.JobEnded || now.Message != "" {
				t.Errorf("ended: %+v, %v", now, err)
			}
			got := map[string]sdk.Answer{}
			err = c.FetchBatch(t.Context(), made.ID, func(id string, a sdk.Answer) error {
				got[id] = a
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, id := range ids {
				if like := alike(s, got[id], texts[i], false); like < 0.99999 {
					t.Errorf("%s is alike by %g: %v", id, like, got[id])
				}
			}
			if err := c.CancelBatch(t.Context(), made.ID); err != nil || !jobs.Jobs()[0].Cancelled || jobs.Jobs()[1].Cancelled {
				t.Errorf("cancelled: %t, %v", jobs.Jobs()[0].Cancelled, err)
			}
			if err := c.CancelBatch(t.Context(), "nobody"); err != nil {
				t.Errorf("one that is not there: %v", err)
			}
		})
	}
}
