package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	bars "github.com/jedib0t/go-pretty/v6/progress"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/config"
	"github.com/embedsidecar/embedsidecar/models"
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
		name: "models pull", group: groupModels, usage: "fetch a model from a hub and import it", arguments: "NAME", minArgs: 1, maxArgs: 1,
		description: "Fetches AUTHOR/MODEL from the hub and makes a model folder of it as models import does. Weights must be what was pinned: by --sha256, by --sums, or by this program, which knows those of its default model. What was cut off is gone on with, also by the next pull; nothing is in place before it is whole.",
		flags: append(c.flags(),
			&cli.StringFlag{Name: "revision", Destination: &c.revision, Value: "main", Usage: "`REVISION` of the model"},
			&cli.StringFlag{Name: "sha256", Destination: &c.sha256, Usage: "`HEX` what the weights must be: model.safetensors, or onnx/model.onnx"},
			&cli.StringFlag{Name: "sums", Destination: &c.sums, Usage: "`FILE` in the form of SHA256SUMS with what exactly to fetch, and the sum of each"},
			&cli.BoolFlag{Name: "unpinned", Destination: &c.unpinned, DisableDefaultText: true, Usage: "take weights as they come, and print their sums"},
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
	if err := c.pin(&o); err != nil {
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
		return fail(exitFailed, err, "run it again: what is there is not fetched twice ("+filepath.Dir(o.Into)+")")
	}
	if !shown {
		env.say("fetched %d files of %s", len(sums), o.Name)
	}
	if c.unpinned {
		env.say("%s", strings.TrimSpace(sums.String()))
	}
	if err := c.importCommand.run(ctx, env, o.Into); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Dir(o.Into)); err != nil {
		return fmt.Errorf("remove what was fetched: %w", err)
	}
	return nil
}

// pin decides what the files must be.
func (c *pullCommand) pin(o *models.PullOptions) error {
	o.Pins = models.KnownPins(o.Name)
	switch {
	case c.sums != "" && c.sha256 != "":
		return misuse("--sums and --sha256 exclude each other: a list has the sum of the weights, too")
	case c.sums != "":
		data, err := os.ReadFile(c.sums)
		if err != nil {
			return fail(exitUsage, fmt.Errorf("--sums: %w", err))
		}
		list, err := models.ParseSums(data)
		if err != nil {
			return fail(exitUsage, fmt.Errorf("--sums: %s: %w", c.sums, err))
		}
		o.Pins, o.Only = maps.Clone(list), true
	case c.sha256 != "":
		pin := strings.ToLower(c.sha256)
		if _, err := models.ParseSums([]byte(pin + "  x\n")); err != nil {
			return misuse("--sha256: expected 64 hexadecimal digits, not %q", c.sha256)
		}
		o.Pins = models.Sums{}
		for _, name := range models.WeightFiles {
			o.Pins[name] = pin
		}
	case len(o.Pins) == 0 && !c.unpinned:
		return fail(exitUsage, fmt.Errorf("nothing says what the weights of %s must be", o.Name),
			"--sha256 HEX pins them: the hub shows the sum of each large file", "--unpinned takes them as they come, and prints the sums")
	}
	return nil
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
