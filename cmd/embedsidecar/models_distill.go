package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
)

func newModelsDistill() *command {
	out, dims := "", 0
	return &command{
		name: "distill", group: groupModels, usage: "make a static model from a model",
		arguments: "[MODEL]", maxArgs: 1,
		description: "Sends each token of the model's vocabulary through the model once and keeps the vectors in a " +
			"table, which the plugin static reads: hundreds of times as fast, without ONNX Runtime, and worse at " +
			"finding. How much worse is measured and printed. Takes a few minutes for the default model. For a " +
			"first try with many rows, and for machines without the power for an encoder.",
		flags: []cli.Flag{
			own.text("out", &out, "`DIR` of the new model, which must not be there yet",
				"beside the other models, with -static behind the name"),
			own.number("dims", &dims, "`DIMS` of the new vectors, at most those of the model", "256, or as many"),
		},
		settings: []string{config.GroupEmbedding},
		run:      func(ctx context.Context, env *environment) error { return distill(ctx, env, out, dims) },
	}
}

func distill(ctx context.Context, env *environment, out string, dims int) error {
	if dims < 0 {
		return misuse("--dims: expected a number above 0")
	}
	const often = 15 * time.Second
	told := time.Now()
	done, err := env.models().Distill(ctx, env.model(), out, dims, func(done, total int) {
		if done == 0 {
			env.say("embedding %d tokens", total)
		} else if time.Since(told) > often {
			told = time.Now()
			env.say("%d of %d tokens", done, total)
		}
	})
	if err != nil {
		return err
	}
	columns := []string{"model", "path", "teacher", ">dims", "agreement with the teacher", ">seconds"}
	return env.out.Show(done, func() output.Table {
		return output.Row(columns, done.Name, done.Path, done.Teacher, done.Dims, done.Agreement,
			fmt.Sprintf("%.0f", done.Seconds))
	})
}
