package main

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// TestManifest_NamesWhatIsRead: every configurable setting reaches the plugin under the name that it reads.
func TestManifest_NamesWhatIsRead(t *testing.T) {
	asked := map[string]bool{}
	e := &embedder{lookup: func(name string) (string, bool) {
		asked[name] = true
		return "1", name == modelKey
	}}
	_, _ = e.options() // here is no library
	of := manifest.Of("onnx")
	names := []string{of.Library.Variable, "MODEL_SHA256"}
	for _, s := range of.Settings {
		names = append(names, s.Variable)
	}
	for _, name := range names {
		if !asked["EMBEDSIDECAR_PLUGIN_"+name] {
			t.Errorf("the plugin does not read %s", name)
		}
	}
}

// A text that cannot be tokenized is at fault itself. Its call must not be repeated as if the plugin were down.
func TestP5_AnErrorOfATextReachesTheHostAsOne(t *testing.T) {
	t.Parallel()
	for class, want := range map[embed.Class]codes.Code{
		embed.Data: codes.InvalidArgument, embed.Resource: codes.ResourceExhausted, embed.Transient: codes.Unknown,
	} {
		err := classed(&embed.Error{Class: class, Code: "tokenize", Err: errors.New("no such token")})
		if got := status.Code(sdk.Status(err)); got != want {
			t.Errorf("%s: %s, want %s", class, got, want)
		}
	}
	if err := classed(nil); err != nil {
		t.Error(err)
	}
}
