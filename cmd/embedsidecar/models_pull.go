package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	bars "github.com/jedib0t/go-pretty/v6/progress"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/models"
)

// pullCommand fetches a model from a hub and imports it.
type pullCommand struct {
	importCommand

	revision, sums, sha256 string
	unpinned               bool
}

func newModelsPull() *command {
	c := &pullCommand{}
	return &command{
		name: "pull", group: groupModels, usage: "fetch a model from a hub and import it", arguments: "NAME",
		minArgs: 1, maxArgs: 1,
		description: "Fetches AUTHOR/MODEL from the hub and makes a model folder of it as models import does. What is fetched must be what was pinned: by --sha256 (the weights), by --sums (everything), by this program, which knows all files of its default model, and by the first pull, whose sums each later one compares. What was cut off is gone on with, also by the next pull; nothing is in place before it is whole.",
		flags: append(c.flags(),
			&cli.StringFlag{
				Name: "revision", Destination: &c.revision,
				Usage: "`REVISION` of the model (main, or of a model that this program knows the one it knows)",
			},
			&cli.StringFlag{
				Name: "sha256", Destination: &c.sha256,
				Usage: "`HEX` what the weights must be: model.safetensors, or onnx/model.onnx",
			},
			&cli.StringFlag{
				Name: "sums", Destination: &c.sums,
				Usage: "`FILE` in the form of SHA256SUMS with what exactly to fetch, and the sum of each",
			},
			&cli.BoolFlag{
				Name: "unpinned", Destination: &c.unpinned, DisableDefaultText: true,
				Usage: "take the first time what comes, and print the sums",
			},
		),
		settings: []string{config.GroupEmbedding},
		run:      c.pull,
	}
}

func (c *pullCommand) pull(ctx context.Context, env *environment) error {
	home, err := env.modelHome()
	if err != nil {
		return err
	}
	o := models.PullOptions{Hub: env.config.Hub, Name: env.args[0], Revision: c.revision, Log: env.log}
	record, err := c.pin(&o, home)
	if err != nil {
		return err
	}
	if err := models.CheckSource(o); err != nil {
		return fail(exitUsage, err)
	}
	name := filepath.Base(o.Name)
	if c.name == "" {
		c.name = name
	}
	// What is fetched of one revision is not mixed with that of another.
	o.Into = filepath.Join(home, ".pull-"+strings.NewReplacer("/", "--").Replace(o.Name+"@"+o.Revision), name)
	finished, shown := env.showProgress(&o)
	sums, err := models.Pull(ctx, o)
	finished()
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		hints := []string{"run it again: what is there is not fetched twice (" + filepath.Dir(o.Into) + ")"}
		if record != "" {
			hints = append(hints, "if it has changed with good reason: "+record+
				" has the sums of the first pull, and without it they are taken anew")
		}
		return fail(exitFailed, err, hints...)
	}
	if !shown {
		env.say("fetched %d files of %s", len(sums), o.Name)
	}
	if c.unpinned {
		env.say("%s", strings.TrimSpace(sums.String()))
	}
	c.fetched = sums
	if err := c.importCommand.run(ctx, env, o.Into); err != nil {
		return err
	}
	if err := models.Record(home, o.Name, o.Revision, sums); err != nil {
		return fmt.Errorf("keep the sums of what was fetched: %w", err)
	}
	if err := os.RemoveAll(filepath.Dir(o.Into)); err != nil {
		return fmt.Errorf("remove what was fetched: %w", err)
	}
	return nil
}

// pin decides what the files must be. record is the file of an earlier pull that has a say in it.
func (c *pullCommand) pin(o *models.PullOptions, home string) (record string, err error) {
	revision, sums := models.Known(o.Name)
	if o.Revision == "" {
		o.Revision = cmp.Or(revision, "main")
	}
	if o.Revision == revision {
		o.Pins, o.Only = sums, true
	}
	if c.sums != "" {
		if c.sha256 != "" {
			return "", misuse("--sums and --sha256 exclude each other: a list has the sum of the weights, too")
		}
		data, err := os.ReadFile(c.sums)
		if err != nil {
			return "", fail(exitUsage, fmt.Errorf("--sums: %w", err))
		}
		o.Only = true
		if o.Pins, err = models.ParseSums(data); err != nil {
			return "", fail(exitUsage, fmt.Errorf("--sums: %s: %w", c.sums, err))
		}
		return "", nil
	}
	recorded, path, err := models.Recorded(home, o.Name, o.Revision)
	if err != nil {
		return "", fail(exitFailed, err)
	}
	if recorded != nil && !o.Only { // the same files, and the same in them
		o.Pins, o.Only, record = recorded, true, path
	}
	if c.sha256 != "" {
		pin := strings.ToLower(c.sha256)
		if _, err := models.ParseSums([]byte(pin + "  x\n")); err != nil {
			return "", misuse("--sha256: expected 64 hexadecimal digits, not %q", c.sha256)
		}
		if o.Pins == nil {
			o.Pins = models.Sums{}
		}
		for _, name := range models.WeightFiles {
			if _, listed := o.Pins[name]; listed || !o.Only {
				o.Pins[name] = pin
			}
		}
	}
	if len(o.Pins) == 0 && !c.unpinned {
		return "", fail(exitUsage, fmt.Errorf("nothing says what the weights of %s must be", o.Name),
			"--sha256 HEX pins them: the hub shows the sum of each large file",
			"--unpinned takes them as they come, and prints the sums")
	}
	return record, nil
}

// showProgress lets a bar grow for each file, on a terminal. finished ends it.
func (e *environment) showProgress(o *models.PullOptions) (finished func(), shown bool) {
	if e.quiet || !isTerminal(e.stderr) {
		return func() {}, false
	}
	const barWidth, least = 30, 1 << 16 // bytes of a file that is worth a bar
	w := bars.NewWriter()
	w.SetOutputWriter(e.stderr)
	w.SetTrackerLength(barWidth)
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.Style().Options.Separator = " "
	if !e.color {
		w.SetStyle(bars.StyleDefault)
	}
	trackers := map[string]*bars.Tracker{}
	o.Progress = func(file string, done, total int64) {
		tracker, ok := trackers[file]
		if !ok && total >= 0 && total < least {
			return
		}
		if !ok {
			tracker = &bars.Tracker{Message: file, Total: max(total, 0), Units: bars.UnitsBytes}
			trackers[file] = tracker
			w.AppendTracker(tracker)
		}
		tracker.SetValue(done)
		if total >= 0 && done >= total {
			tracker.MarkAsDone()
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Render()
	}()
	return func() {
		for _, tracker := range trackers {
			if !tracker.IsDone() {
				tracker.MarkAsErrored()
			}
		}
		w.Stop()
		<-over
	}, true
}
